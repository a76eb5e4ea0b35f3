"""Train the bundled generator that thinks, from scratch; its verifier is the demo pair's.

    scripts/run training.thinking --out engines/checkpoints/demo-thinking

It solves the demo problems in the same steps, after a scratch in `<think>`: one paragraph for each
operation, split into easier ones (`37 + 58: 87 + 8 = 95`), sometimes behind a wrong first guess
(`37 + 58 = 94. Wait, ...`). Part of the scratches is cut off and closed, as a budget does; so the
model answers without them too, and makes more mistakes. Seeded, but not bitwise repeatable: thread
counts and torch versions change the sums.

Needs torch, transformers and the installed project.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from scripts.training import models, text
from scripts.training.data import wrong_number
from scripts.training.solutions import STEP_DELIMITER, training_chain
from scripts.training.training import Losses, Schedule, train
from tts.datasets.chains import Chain, Op
from tts.datasets.demo import DEMO

OPENS, CLOSES = "<think>", "</think>"
CLOSING = f"\n{CLOSES}{STEP_DELIMITER}"
"""What a budget closes the scratch with."""
WRONG_GUESSES = 0.3
CUT_OFF = 0.25
FORM_WEIGHTS = (0.3, 0.25, 0.45)  # as the demo generator's
TOKENS = 6144
TARGET = 0.65
"""Training stops at this share of right samples, with the whole scratch, on validation problems."""
SHAPE = models.shape(hidden=128, layers=4, heads=4, intermediate=352, tied=True)
_BEHIND = "{{ '<|assistant|>' }}"
CHAT_TEMPLATE = text.CHAT_TEMPLATE.replace(
    _BEHIND,
    _BEHIND + "{% if enable_thinking is defined and not enable_thinking %}"
    f"{{{{ '{OPENS}\\n{CLOSES}\\n\\n' }}}}"
    f"{{% else %}}{{{{ '{OPENS}' }}}}{{% endif %}}",
)


def scratch(rng: random.Random, chain: Chain) -> str:
    """What is written before the solution of a chain."""
    values = chain.values()
    paragraphs = []
    for (op, b), a, c in zip(chain.ops, values, values[1:], strict=False):
        wrong = rng.random() < WRONG_GUESSES
        guess = f"{a} {op} {b} = {wrong_number(rng, DEMO, c)}. Wait, " if wrong else ""
        paragraphs.append(guess + _worked(op, a, b, c))
    return STEP_DELIMITER.join([*paragraphs, f"So {values[-1]}."])


def _worked(op: Op, a: int, b: int, c: int) -> str:
    """An operation in easier ones."""
    tens, ones = b - b % 10, b % 10
    if op in "+-" and tens and ones:
        first = a + tens if op == "+" else a - tens
        return f"{a} {op} {b}: {first} {op} {ones} = {c}"
    if op == "*" and max(a, b) > 10:
        large, small = max(a, b), min(a, b)
        return f"{a} {op} {b}: {large // 10 * 10 * small} + {large % 10 * small} = {c}"
    if op == "/":
        return f"{a} {op} {b}: {b} * {c} = {a}, {c}"
    return f"{a} {op} {b} = {c}"


def make_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE over questions, scratches and solutions, with the marks of thinking."""
    rng = random.Random(f"thinking/{seed}")

    def sample_texts() -> list[str]:
        chain = training_chain(DEMO, rng, rng.randint(2, 10))
        solution = STEP_DELIMITER.join(text.random_solution(rng, chain))
        return [text.random_question(rng, chain), scratch(rng, chain), solution]

    tokenizer = text.train_tokenizer(
        DEMO, seed, sample_texts=sample_texts, size=text.VOCABULARY - 2
    )
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in (OPENS, CLOSES)])
    return tokenizer


class Codec(text.Codec):
    """That of the demo pair with a prompt that ends inside the scratch, or behind an empty one."""

    closed = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.opens, self.closes = self._one(OPENS), self._one(CLOSES)
        self.closing = self._encode(CLOSING)

    def prompt(self, question: str) -> list[int]:
        """See text.Codec."""
        return [*super().prompt(question), self.opens, *(self.closing if self.closed else [])]

    def thought(self, written: str) -> list[int]:
        """Ids of a scratch with its end."""
        ids: list[int] = []
        for paragraph in written.split(STEP_DELIMITER):
            ids += [*self._cached(paragraph), self.delimiter]
        return [*ids[:-1], self.closes, self.delimiter]


def batch(codec: Codec, rng: random.Random) -> tuple[Tensor, Tensor]:
    """Dialogues of one operation count: ids, and which of them to learn."""
    operations = rng.randint(2, 10)
    rows: list[tuple[list[int], list[int]]] = []
    for _ in range(TOKENS // (24 + 31 * operations)):
        chain = training_chain(DEMO, rng, operations)
        ids = codec.prompt(text.random_question(rng, chain))
        thought = codec.thought(scratch(rng, chain))
        learn = [0] * len(ids) + [1] * len(thought)
        if rng.random() < CUT_OFF:
            thought = [*thought[: rng.randrange(len(thought) - 2)], *codec.closing]
            learn = [0] * len(ids) + [1] * (len(thought) - len(codec.closing))
            learn += [0] * len(codec.closing)
        answer = codec.solution(text.random_solution(rng, chain, FORM_WEIGHTS))
        rows.append(([*ids, *thought, *answer], [*learn, *[1] * len(answer)]))
    width = max(len(ids) for ids, _ in rows)
    padded = [row + [codec.pad] * (width - len(row)) for row, _ in rows]
    learned = [row + [0] * (width - len(row)) for _, row in rows]
    return torch.tensor(padded), torch.tensor(learned).bool()


def make_generator(codec: Codec, seed: int, schedule: Schedule) -> LlamaForCausalLM:
    """Train until enough samples are right, while enough are wrong for a verifier to find."""
    torch.manual_seed(seed)
    model, probe = (models.new_model(SHAPE) for _ in range(2))
    print(f"{model.num_parameters():,} parameters")
    rng = random.Random(f"thinking/validation/{seed}")
    held = [training_chain(DEMO, rng, 2 + i % 9) for i in range(90)]
    questions = [DEMO.question_of(chain) for chain in held]

    def losses(step: int) -> Losses:
        ids, learn = batch(codec, random.Random(f"thinking/{seed}/{step}"))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model.lm_head(models.hidden(model, ids[:, :-1])[learn[:, 1:]])
        return {"loss": F.cross_entropy(logits.float(), ids[:, 1:][learn[:, 1:]])}

    def good_enough(step: int, weights: dict[str, Tensor]) -> bool:
        if step % 100 or step < 500:
            return False
        probe.load_state_dict(weights)
        reached = []
        for codec.closed in (True, False):
            groups = models.sampled(probe.eval(), codec, questions, 2, tokens=440)
            right = [models.is_right(c, s) for c, ss in zip(held, groups, strict=True) for s in ss]
            reached.append(sum(right) / len(right))
        without, with_it = reached
        print(f"step {step}: {without:.1%} right without a scratch, {with_it:.1%} with it")
        return with_it >= TARGET

    model.load_state_dict(train("generator", model, schedule, losses, good_enough))
    return model.eval()


def main() -> None:
    """Train it and save the checkpoint."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    codec = Codec(make_tokenizer(args.seed))
    schedule = Schedule(steps=args.steps, rate=2e-3, warmup=60, floor=0.05, average=0.96)
    models.save(make_generator(codec, args.seed, schedule), args.out, codec)
    text.save_tokenizer(codec.tokenizer, args.out, CHAT_TEMPLATE)
    print(f"{args.out}: done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
