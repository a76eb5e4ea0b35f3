"""The dialogue of a verifier as token ids: how questions and steps are put to it.

A dialogue is cut only where a score is read. The text between two cuts is encoded in one go, so its
ids are those of the running text; and the ids of a longer path extend those of its prefix exactly,
so that the engine's prefix cache serves every earlier step (of format prompted: all but the end,
which asks about the last step). Where the answer is read as one text (`VerifierRole.reads_whole`),
`first` takes all of it and its ids are those of the whole. `FORMATS` in `tts.build.spec` names what
makes each dialogue. Questions and steps are text: a control token that they spell ends no turn and
makes no step (`Tokenizer.inert`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from tts.base.errors import CheckpointError, ConfigError

from ..checkpoint_files import read_json_object
from ..spec import FORMATS, HeadKind, Scores, VerifierRole
from ..tokenizer import Ids, Message, Tokenizer
from ..verifier_heads import HEAD_COLUMNS, Head, head_of

ANY_WORD = "1"
"""Text in front of a piece while it is encoded: alone, it might begin with another token."""


class VerifierDialogue(ABC):
    """How a path is put to a verifier; the last token is where its last step is scored."""

    tokenizer: Tokenizer
    answer: str
    """The text after a step, up to where its score is read."""

    def decode(self, ids: Ids) -> str:
        """The text of a part of a dialogue, without special tokens."""
        return self.tokenizer.decode(ids.tolist())

    @abstractmethod
    def first(self, question: str, step: str) -> Ids:
        """Ids that score the first step of `question`; a step without text adds nothing."""

    def extend(self, scored: Ids, step: str, number: int = 0) -> Ids:
        """Ids that score `step` after the path that `scored` scores; they extend them exactly.

        With format prompted they extend all but the end of `scored`, which asks about its own
        step. A step without text adds nothing: its path is scored as its parent's. `number` is the
        step's, from 1 on, for a dialogue that shows it.
        """
        return self.add_turn(scored, step, number) if step else scored

    @abstractmethod
    def add_turn(self, scored: Ids, step: str, number: int = 0) -> Ids:
        """Like `extend`, but a step without text becomes a turn of its own."""


def verifier_dialogue(tokenizer: Tokenizer, spec: VerifierRole) -> VerifierDialogue:
    """The dialogue of a verifier; raises CheckpointError for its tokenizer, or another head."""
    head = head_kind(tokenizer.checkpoint, spec)
    if head not in spec.facts.judges:
        allowed = [name for name, facts in FORMATS.items() if head in facts.judges]
        raise CheckpointError(
            f"verifier.format is {spec.format!r}, but {tokenizer.checkpoint} judges with "
            + ("labels" if head == "labels" else f"a {head} head")
            + f"; formats for that: {', '.join(allowed)}.",
            hint="Set verifier.format in the deployment file (docs/reference/verifiers.md).",
        )
    module, _, function = spec.facts.dialogue.partition(":")
    make = getattr(import_module(f".{module}", __package__), function)
    dialogue: VerifierDialogue = make(tokenizer, spec)
    return dialogue


def column_tokens(tokenizer: Tokenizer, spec: VerifierRole) -> tuple[int, ...]:
    """The labels' ids, the best first, or 0 and 1 where none are read; raises CheckpointError."""
    if not spec.labels or head_kind(tokenizer.checkpoint, spec) != "labels":
        return HEAD_COLUMNS
    return label_ids(tokenizer, spec.labels)


def head_kind(checkpoint: Path, spec: VerifierRole) -> HeadKind:
    """What the deployment states, or else what config.json names, or labels without either."""
    if spec.head is not None:
        return spec.head
    head = _named_head(checkpoint)
    return head.kind if head else "labels"


def what_is_scored(checkpoint: Path, spec: VerifierRole) -> Scores:
    """What the deployment states, or else what the head was trained for, or the dialogue is for."""
    if spec.scores is not None:
        return spec.scores
    head = _named_head(checkpoint)
    return head.scores if head else "answers" if spec.reads_whole else "steps"


def _named_head(checkpoint: Path) -> Head | None:
    """The head that config.json names, if there is one."""
    file = checkpoint / "config.json"
    headed = head_of(read_json_object(file)) if file.is_file() else None
    return headed[1] if headed else None


def require_prompt(spec: VerifierRole) -> str:
    """The text of a verifier's prompt; raises ConfigError where its file has not been read."""
    if spec.prompt is None:
        raise ConfigError(
            f"The prompt of {spec.prompt_file} has not been read.",
            hint="Load the deployment from its file, or give verifier.prompt, its text.",
        )
    return spec.prompt


def chat_pieces(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    marks: Sequence[str],
    form: str,
    *,
    generation_prompt: bool,
    hints: tuple[str, str],
) -> list[str]:
    """The texts around the marks that stand in messages, as the chat template renders them.

    Raises CheckpointError for a template that fails, or that changes a mark, with the hint of each.
    """
    try:
        text = tokenizer.chat(messages, generation_prompt=generation_prompt)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error.message} Verifier format {form} is made from it.", hint=hints[0]
        ) from error
    pieces: list[str] = []
    for mark in marks:
        before, separator, text = text.partition(mark)
        if not separator:
            what = "messages" if min(len(messages), len(marks)) > 1 else "a message"
            raise CheckpointError(
                f"The chat template of {tokenizer.checkpoint} does not carry {what} verbatim, so "
                f"it cannot be used for verifier format {form}.",
                hint=hints[1],
            )
        pieces.append(before)
    return [*pieces, text]


def label_ids(
    tokenizer: Tokenizer, labels: Iterable[str], field: str = "verifier.labels"
) -> tuple[int, ...]:
    """Ids of the labels; raises CheckpointError unless each is a token, and one of its own."""
    by_id: dict[int, str] = {}
    hint = f"Set {field} in the deployment file to labels of this verifier."
    for label in labels:
        tokens = tokenizer.encode(label)
        if len(tokens) != 1:
            raise CheckpointError(
                f"{field}: {label!r} is {len(tokens)} tokens ({tokens}) in the tokenizer "
                f"of {tokenizer.checkpoint}; a label must be exactly one token.",
                hint=hint,
            )
        if (other := by_id.setdefault(tokens[0], label)) != label:
            raise CheckpointError(
                f"{field}: {other!r} and {label!r} are the same token {tokens[0]} in the "
                f"tokenizer of {tokenizer.checkpoint}; they must differ.",
                hint=hint,
            )
    return tuple(by_id)
