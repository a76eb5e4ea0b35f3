"""A process reward model (PRM) of your own, run by transformers, scores the steps of a search.

    pip install '.[cpu,verify]' && tts build-engines demo
    python examples/own_prm.py

The checkpoint is the demo's verifier in its Hugging Face format, so the example can compare its
scores with those of the compiled engine. Replace `PRM` with your model: all a search needs is a
function of a question and the steps so far that returns numbers within [0, 1].
"""

from __future__ import annotations

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tts import Session
from tts.base.paths import deployments_dir

DEMO = deployments_dir().parent / "checkpoints" / "demo-verifier"


class PRM:
    """Reads a dialogue: each step is a user's turn, which is answered with + or -."""

    def __init__(self, checkpoint: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
        self.turn, *self.labels = self.tokenizer.convert_tokens_to_ids(["<|assistant|>", "+", "-"])

    @torch.inference_mode()
    def score(self, question: str, steps: list[str]) -> list[float]:
        """The probability of + after each step: one forward pass scores the whole chain."""
        turns = [f"{question} {steps[0]}", *steps[1:]]
        chat = [
            {"role": role, "content": content}
            for turn in turns
            for role, content in (("user", turn), ("assistant", "+"))
        ]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False)
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        logits = self.model(ids).logits[0, ids[0] == self.turn][:, self.labels]
        scores: list[float] = logits.softmax(-1)[:, 0].tolist()
        return scores


def main() -> None:
    """Search with the model's scores, then print them beside those of the compiled verifier."""
    parser = argparse.ArgumentParser(description="Search with a PRM that transformers runs.")
    parser.add_argument("question", nargs="?", default="Compute 12 + 30 - 5.")
    parser.add_argument("--checkpoint", default=str(DEMO))
    given = parser.parse_args()
    prm = PRM(given.checkpoint)
    with Session.open("demo", verifier=prm.score, server="embedded") as session:
        result = session.solve(given.question, n=8)
    with Session.open("demo", server="embedded") as session:
        best = result.completions[0]
        compiled = session.score(given.question, [best.steps]).completions[0].step_scores
    own = prm.score(given.question, [*best.steps])
    print(f"{given.question}  ->  {result.answer}\n\ntransformers  engine  step")
    for step, mine, theirs in zip(best.steps, own, compiled, strict=True):
        print(f"{mine:12.4f}  {theirs:6.4f}  {' '.join(step.split())}")


if __name__ == "__main__":
    main()
