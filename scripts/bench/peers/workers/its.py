"""its_hub's beam search and particle filtering, asked line by line; run by the peers' interpreter.

One line of JSON asks, one answers (see scripts/bench/peers). Steps come from a server
with OpenAI's API, scores from the demo pair's verifier in this process, as its_hub's own verifier
is one in the process (on vLLM, which its package reward-hub starts on a GPU): one batch for all
that are asked for at once, the last step's score. Problems are searched so many at a time, as
asked. its_hub has no seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
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
    parser.add_argument("--verifier", required=True)
    arguments = parser.parse_args()
    import torch
    from its_hub.api import AbstractProcessRewardModel
    from its_hub.core.algorithms.beam_search import BeamSearch, BeamSearchResult
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
    from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
    from its_hub.core.lms.step_generation import StepGeneration
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

    class Verifier(AbstractProcessRewardModel):  # type: ignore[misc]
        """P("+") of the last step."""

        async def ascore(self, prompt: Any, responses: Any) -> Any:
            single = isinstance(responses, str)
            asked = [responses] if single else responses
            prompts = [ids_of(str(prompt).removeprefix("user: "), answer) for answer in asked]
            scores = await asyncio.to_thread(self._scores, prompts)
            return scores[0] if single else scores

        def score(self, prompt: Any, responses: Any) -> Any:
            return asyncio.run(self.ascore(prompt, responses))

        @staticmethod
        def _scores(prompts: list[list[int]]) -> list[float]:
            widest = max(map(len, prompts))
            padded = torch.tensor([ids + [0] * (widest - len(ids)) for ids in prompts])
            mask = torch.tensor([[1] * len(ids) + [0] * (widest - len(ids)) for ids in prompts])
            with torch.inference_mode():
                logits = model(input_ids=padded, attention_mask=mask).logits
            rows = torch.arange(len(prompts)), mask.sum(1) - 1
            return list(logits[rows][:, [plus, minus]].softmax(-1)[:, 0].tolist())

    steps = StepGeneration(max_steps=16, step_token="\n\n", stop_token=END, temperature=0.8)

    async def solve(question: dict[str, Any]) -> dict[str, Any]:
        lm = OpenAICompatibleLanguageModel(
            question["endpoint"], "none", question["model"], max_completion_tokens=160
        )
        verifier = Verifier()
        algorithm = (
            BeamSearch(steps, verifier, beam_width=question["width"])
            if question["algorithm"] == "beam-search"
            else ParticleFiltering(steps, verifier)
        )
        places = asyncio.Semaphore(question["at_once"])

        async def one(problem: str) -> list[list[Any]]:
            async with places:
                found = await algorithm.ainfer(lm, problem, question["n"], False)
            if isinstance(found, BeamSearchResult):
                weights = found.scores
            else:  # of particles, which resampling has made equal but for the last steps
                largest = max(found.log_weights_lst)
                weights = [math.exp(weight - largest) for weight in found.log_weights_lst]
            texts = [response["content"] for response in found.responses]
            return [[text, weight] for text, weight in zip(texts, weights, strict=True)]

        begun, spent = time.perf_counter(), time.process_time()
        solved = await asyncio.gather(*map(one, question["problems"]))
        wall = time.perf_counter() - begun
        await lm.close()
        return {"wall_s": wall, "cpu_s": time.process_time() - spent, "solved": solved}

    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(asyncio.run(solve(json.loads(line)))), file=answers, flush=True)


if __name__ == "__main__":
    main()
