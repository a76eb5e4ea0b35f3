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

import random

from tokenizers import AddedToken, Tokenizer
from transformers import LlamaForCausalLM

from scripts.training import models, text
from scripts.training.data import Row, learned, wrong_number
from scripts.training.solutions import STEP_DELIMITER, training_chain, worked
from scripts.training.training import Schedule
from tts.datasets.demo import DEMO, Chain

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
        paragraphs.append(guess + worked(op, a, b, c))
    return STEP_DELIMITER.join([*paragraphs, f"So {values[-1]}."])


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
    """Codec of the demo pair with a prompt that ends inside the scratch, or behind an empty one."""

    closed = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.opens, self.closes = self._one(OPENS), self._one(CLOSES)
        self.closing = self._encode(CLOSING)

    def prompt(self, question: str) -> list[int]:
        """See text.Codec."""
        return [*super().prompt(question), self.opens, *(self.closing if self.closed else [])]

    def thought(self, text_of_thought: str) -> list[int]:
        """Ids of a scratch with its end."""
        ids: list[int] = []
        for paragraph in text_of_thought.split(STEP_DELIMITER):
            ids += [*self._cached(paragraph), self.delimiter]
        return [*ids[:-1], self.closes, self.delimiter]


def dialogues(codec: Codec, rng: random.Random) -> list[Row]:
    """Dialogues of one operation count."""
    operations = rng.randint(2, 10)
    rows = []
    for _ in range(TOKENS // (24 + 31 * operations)):
        chain = training_chain(DEMO, rng, operations)
        prompt = codec.prompt(text.random_question(rng, chain))
        thought = codec.thought(scratch(rng, chain))
        closing: list[int] = []
        if rng.random() < CUT_OFF:
            thought, closing = thought[: rng.randrange(len(thought) - 2)], codec.closing
        answer = codec.solution(text.random_solution(rng, chain, FORM_WEIGHTS))
        ids, learn = learned(prompt, thought)
        more, learn_more = learned(closing, answer)
        rows.append(([*ids, *more], [*learn, *learn_more]))
    return rows


def make_generator(seed: int, schedule: Schedule) -> tuple[LlamaForCausalLM, Codec]:
    """Train until enough samples are right, while enough are wrong for a verifier to find."""
    codec = Codec(make_tokenizer(seed))
    rng = random.Random(f"thinking/validation/{seed}")
    chains = [training_chain(DEMO, rng, 2 + i % 9) for i in range(90)]
    problems = [(chain, DEMO.question_of(chain)) for chain in chains]

    def rows(step: int) -> list[Row]:
        return dialogues(codec, random.Random(f"thinking/{seed}/{step}"))

    def good_enough(step: int, model: LlamaForCausalLM) -> bool:
        if step % 100 or step < 500:
            return False
        reached = []
        for codec.closed in (True, False):
            reached.append(
                models.right_share(models.attempts(model, codec, problems, 2, tokens=440))
            )
        without, with_it = reached
        print(f"step {step}: {without:.1%} right without a scratch, {with_it:.1%} with it")
        return with_it >= TARGET

    model = models.train_language_model("generator", SHAPE, schedule, seed, rows, good_enough)
    return model, codec


if __name__ == "__main__":
    models.main(
        __doc__,
        make_generator,
        Schedule(steps=1600, rate=2e-3, warmup=60, floor=0.05, average=0.96),
        CHAT_TEMPLATE,
    )
