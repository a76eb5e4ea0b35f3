"""its_hub's searches, and answers of other servers, asked line by line; run by its interpreter.

One line of JSON asks, one answers (see scripts/bench/peers). Steps come from a server
with OpenAI's API, scores from a gateway's /pooling or from the demo pair's verifier in this
process, as its_hub's own verifier is one in the process (on vLLM, which its package reward-hub
starts on a GPU): one batch for all that are asked for at once, the last step's score. Problems are
searched so many at a time, as asked. its_hub has no seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any

END = "I hope it is correct."
"""How the demo pair ends a solution: its_hub does not see the end that a server reports."""


def main() -> None:
    """Load the verifier, then answer questions until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is none of the answers
    parser = argparse.ArgumentParser()
    parser.add_argument("verifier")
    parser.add_argument("--pooling", help="address of a server that scores")
    arguments = parser.parse_args()
    import aiohttp
    from its_hub.api import AbstractOutcomeRewardModel, AbstractProcessRewardModel
    from its_hub.core.algorithms.beam_search import BeamSearch
    from its_hub.core.algorithms.bon import BestOfN
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
    from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
    from its_hub.core.lms.step_generation import StepGeneration

    if not arguments.pooling:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(arguments.verifier)
        model: Any = AutoModelForCausalLM.from_pretrained(arguments.verifier, dtype=torch.float32)
        model.eval()
        plus, minus = (tokenizer.encode(label)[-1] for label in "+-")

    def ids_of(question: str, answer: str) -> list[int]:
        turns = []
        for number, step in enumerate(answer.split("\n\n")):
            turns.append({"role": "user", "content": step if number else f"{question} {step}"})
            turns.append({"role": "assistant", "content": "+"})
        text = tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True, tokenize=False)
        return list(tokenizer.encode(text, add_special_tokens=False))

    def here(question: str, answers: list[str]) -> list[float]:
        prompts = [ids_of(question, answer) for answer in answers]
        widest = max(map(len, prompts))
        padded = torch.tensor([ids + [0] * (widest - len(ids)) for ids in prompts])
        mask = torch.tensor([[1] * len(ids) + [0] * (widest - len(ids)) for ids in prompts])
        with torch.inference_mode():
            logits = model(input_ids=padded, attention_mask=mask).logits
        rows = torch.arange(len(prompts)), mask.sum(1) - 1
        return list(logits[rows][:, [plus, minus]].softmax(-1)[:, 0].tolist())

    class Verifier(AbstractProcessRewardModel, AbstractOutcomeRewardModel):  # type: ignore[misc]
        """P("+") of the last step, of steps so far and of whole answers."""

        def __init__(self, session: aiohttp.ClientSession) -> None:
            self.session = session

        async def ascore(self, prompt: Any, responses: Any = None, **more: Any) -> Any:
            if responses is None or not isinstance(responses, (str, list)):  # conversations
                question = prompt[0][0].content
                responses = [conversation[-1].content for conversation in prompt]
            else:
                question = str(prompt).removeprefix("user: ")
            single = isinstance(responses, str)
            answers = [responses] if single else responses
            if arguments.pooling:
                scores = list(
                    await asyncio.gather(*(self.there(question, each) for each in answers))
                )
            else:
                scores = await asyncio.to_thread(here, question, answers)
            return scores[0] if single else scores

        async def there(self, question: str, answer: str) -> float:
            turns = {"user": question, "assistant": answer}
            messages = [{"role": role, "content": content} for role, content in turns.items()]
            body = {"model": "demo", "messages": messages}
            async with self.session.post(f"{arguments.pooling}/pooling", json=body) as reply:
                reply.raise_for_status()
                return float((await reply.json())["data"][0]["data"][-1][1])

        def score(self, *answers: Any, **more: Any) -> Any:
            return asyncio.run(self.ascore(*answers, **more))

    async def chat(session: aiohttp.ClientSession, question: dict[str, Any], problem: str) -> str:
        body = {**question["body"], "messages": [{"role": "user", "content": problem}]}
        body["tts"] = {"n": question["n"], "seed": question["seed"]}
        async with session.post(f"{question['address']}/v1/chat/completions", json=body) as reply:
            reply.raise_for_status()
            return str((await reply.json())["choices"][0]["message"]["content"])

    steps = StepGeneration(max_steps=16, step_token="\n\n", stop_token=END, temperature=0.8)

    async def solve(question: dict[str, Any]) -> dict[str, Any]:
        lm = OpenAICompatibleLanguageModel(
            f"{question['address']}/v1", "none", "demo", max_completion_tokens=256, temperature=0.8
        )
        places = asyncio.Semaphore(question["at_once"])

        began = time.perf_counter()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:
            verifier = Verifier(session)
            algorithms = {
                "beam-search": BeamSearch(steps, verifier, beam_width=question["width"]),
                "particle-filtering": ParticleFiltering(steps, verifier),
                "best-of-n": BestOfN(verifier),
            }

            async def one(problem: str) -> str:
                async with places:
                    if "body" in question:
                        return await chat(session, question, problem)
                    algorithm = algorithms[question["case"]]
                    result = await algorithm.ainfer(lm, problem, question["n"])
                    return str(result["content"])

            solved = await asyncio.gather(*map(one, question["problems"]))
        wall = time.perf_counter() - began
        await lm.close()
        return {"wall_s": wall, "solved": solved}

    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(asyncio.run(solve(json.loads(line)))), file=answers, flush=True)


if __name__ == "__main__":
    main()
