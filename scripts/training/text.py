"""The tokenizer of a pair, and fast ways from texts to token ids."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from tts.datasets import demo
from tts.datasets.demo import ChainTask

from .solutions import STEP_DELIMITER, STEP_FORMS, solution_steps, training_chain

VOCABULARY = 768
BOS, END, PAD, USER, ASSISTANT, EOT = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|pad|>",
    "<|user|>",
    "<|assistant|>",
    "<|eot_id|>",
)
# Search-and-learn's RLHFlow scorer looks for this one as a place-holder; it must be one token.
PLACEHOLDER = "ки"
SPECIALS = (BOS, END, PAD, USER, ASSISTANT, EOT, PLACEHOLDER)

# Single digits, "\n\n" as one piece, whole phrases between digits. A space before "## Step" or
# "Therefore" stands alone, so that "{question} {step}" encodes to the question's ids, the space's
# and the step's, whether it is encoded in one go or piece by piece.
SPLIT = (
    r"\n\n| (?=## Step |Therefore, )|## Step |\d"
    r"|(?:(?! ?## Step | Therefore, )[^\d\n])+|\n"
)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['user', 'assistant'] %}"
    "{{ raise_exception('this model knows the roles user and assistant only') }}{% endif %}"
    "{{ '<|' + message['role'] + '|>' + (message['content'] | trim) + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(
    task: ChainTask,
    seed: int,
    *,
    sample_texts: Callable[[], list[str]] | None = None,
    size: int = VOCABULARY,
    problems: int = 20_000,
) -> Tokenizer:
    """Byte-level BPE over questions and solutions of random training problems.

    `sample_texts` gives those of one problem, in place of that.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    rng = random.Random(f"tokenizer/{seed}")
    sample = sample_texts or partial(_sample_texts, task, rng)
    tokenizer.train_from_iterator((text for _ in range(problems) for text in sample()), trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos)]
    )
    return tokenizer


def _sample_texts(task: ChainTask, rng: random.Random) -> list[str]:
    """One question and its solution in random wording."""
    chain = training_chain(task, rng, rng.choice(range(2, 11)))
    return [random_question(rng, chain), STEP_DELIMITER.join(random_solution(rng, chain))]


def random_question(rng: random.Random, chain: demo.Chain) -> str:
    """The chain in a random wording (unlike `ChainTask.question_of`, which has one per chain)."""
    surface = rng.choice(demo.SURFACES)
    return demo.render_question(chain, surface, rng.choice(demo.NAMES), rng.choice(demo.THINGS))


def random_solution(
    rng: random.Random, chain: demo.Chain, weights: tuple[float, ...] | None = None
) -> tuple[str, ...]:
    """The right solution with the form of each step drawn at random."""
    return solution_steps(chain, rng.choices(STEP_FORMS, weights, k=len(chain.ops)))


class Codec:
    """Encodes questions and steps of chains to ids, with a cache per step body."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.bos, self.pad, self.user, self.assistant, self.eot = map(
            self._one, (BOS, PAD, USER, ASSISTANT, EOT)
        )
        self.plus, self.minus, self.space = map(self._one, "+- ")
        self.delimiter = self._one(STEP_DELIMITER)
        self._cached = lru_cache(maxsize=1 << 18)(self._encode)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _one(self, text: str) -> int:
        (token,) = self._encode(text)
        return token

    def question(self, text: str) -> list[int]:
        """Ids of a question (not cached: they rarely repeat)."""
        return self._encode(text)

    def step(self, text: str) -> list[int]:
        """Ids of a step text. The number of the step is split off: the rest repeats a lot."""
        match = re.match(r"(## Step \d+)(: .*)\Z", text, re.DOTALL)
        if match is None:
            return self._cached(text)
        return self._cached(match[1]) + self._cached(match[2])

    def prompt(self, question: str) -> list[int]:
        """The generator's prompt: the chat template with one user message."""
        return [self.bos, self.user, *self.question(question), self.eot, self.assistant]

    def solution(self, steps: tuple[str, ...]) -> list[int]:
        """The assistant's turn after the prompt, with the closing end-of-turn."""
        ids: list[int] = []
        for step in steps:
            ids += [*self.step(step), self.delimiter]
        return [*ids[:-1], self.eot]

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, chat_template: str = CHAT_TEMPLATE) -> None:
    """Write tokenizer.json and tokenizer_config.json in the layout of transformers."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOT,
        "pad_token": PAD,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
