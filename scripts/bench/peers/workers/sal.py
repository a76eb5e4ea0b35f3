"""search-and-learn's own beam search and DVTS, asked line by line; run by its interpreter.

One line of JSON asks, one answers (see scripts/bench/peers). What of search-and-learn is
used is its code as it stands; what it fixes in code and the demo pair needs otherwise is given from
here: the verifier's path, data type and batch (its scorer for RLHFlow models), a chat template
without a system message on a tokenizer that lets it be set, and transformers 5's
`apply_chat_template`, which has to be told to return ids alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from functools import partial
from typing import Any

TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|eot_id|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The demo pair's, without BOS, which vLLM adds, and untrimmed: a step ends in a delimiter."""
CONTEXT = 320
ANSWER = re.compile(r"\\boxed\{\s*(-?\d+)\s*\}")


def main() -> None:
    """Load both models, then answer questions until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is none of the answers
    parser = argparse.ArgumentParser()
    parser.add_argument("generator")
    parser.add_argument("verifier")
    parser.add_argument("mode", choices=("eager", "compiled"))
    arguments = parser.parse_args()
    import torch
    from sal.config import Config
    from sal.models.reward_models import RLHFFlow
    from sal.search.beam_search import beam_search
    from sal.search.diverse_verifier_tree_search import dvts
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from vllm import LLM

    class Verifier(RLHFFlow):  # type: ignore[misc]
        """The scorer for RLHFlow models with another checkpoint, data type and batch."""

        batch = 8

        def load_model_and_tokenizer(self, **options: Any) -> tuple[Any, Any]:
            tokenizer: Any = AutoTokenizer.from_pretrained(arguments.verifier)
            model: Any = AutoModelForCausalLM.from_pretrained(arguments.verifier, **options)
            model.eval()
            tokenizer.padding_side = "right"
            tokenizer.pad_token = tokenizer.eos_token
            model.config.pad_token_id = model.config.eos_token_id
            tokenizer.apply_chat_template = partial(
                tokenizer.apply_chat_template, return_dict=False
            )
            self.candidate_tokens = [tokenizer.encode(label)[-1] for label in "+-"]
            return model, tokenizer

        def score(self, questions: Any, outputs: Any, **options: Any) -> Any:
            return super().score(questions, outputs, batch_size=self.batch, **options)

    llm: Any = LLM(
        model=arguments.generator,
        enable_prefix_caching=True,
        max_model_len=CONTEXT,
        enforce_eager=arguments.mode == "eager",
        seed=0,
    )
    tokenizer = AutoTokenizer.from_pretrained(arguments.generator)
    llm.get_tokenizer = lambda: tokenizer  # vLLM 0.32's own keeps its chat template
    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    verifiers: dict[str, Any] = {}

    def solve(question: dict[str, Any]) -> dict[str, Any]:
        search = {"beam-search": beam_search, "dvts": dvts}[question["case"]]
        config = Config(
            approach=search.__name__,
            n=question["n"],
            beam_width=question["width"],
            search_batch_size=question["at_once"],
            max_tokens=CONTEXT,
            custom_chat_template=TEMPLATE,
        )
        verifier = verifiers.get(question["type"])
        if verifier is None:
            verifier = Verifier(config, dtype=types[question["type"]])
            verifiers[question["type"]] = verifier
        verifier.batch = question["batch"]
        torch.manual_seed(question["seed"])
        problems, solved = question["problems"], []
        began = time.perf_counter()
        for first in range(0, len(problems), question["at_once"]):
            batch = problems[first : first + question["at_once"]]
            results = search({"problem": batch}, config, llm, verifier)
            for texts, scores in zip(results["completions"], results["scores"], strict=True):
                solved.append(voted(texts, [score[-1] for score in scores]))
        return {"wall_s": time.perf_counter() - began, "solved": solved}

    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(solve(json.loads(line))), file=answers, flush=True)


def voted(completions: list[str], scores: list[float]) -> str:
    """A completion with the answer whose scores have the largest sum (its weighted vote)."""
    sums: dict[str, float] = {}
    texts = {}
    for text, score in zip(completions, scores, strict=True):
        for answer in ANSWER.findall(text)[-1:]:
            sums[answer] = sums.get(answer, 0.0) + score
            texts[answer] = text
    return texts[max(sums, key=lambda answer: sums[answer])] if sums else ""


if __name__ == "__main__":
    main()
