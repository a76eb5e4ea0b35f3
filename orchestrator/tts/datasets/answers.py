"""What the cell of an answer means: a text, a number with separators, the letter of a choice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tts.base.choices import AnswerKind
from tts.base.input_files import Unreadable
from tts.grading import extract_gsm8k_answer

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SIGN = r"(?P<sign>[-+−]?)\s*[$€£]?\s*"
_WHOLE = r"(?P<whole>[0-9]{1,3}(?P<by>[%s])[0-9]{3}(?:(?P=by)[0-9]{3})*|[0-9]*)"
_BY = "_' \u00a0\u202f"
_NUMBER = re.compile(_SIGN + r"(?=\.?[0-9])" + _WHOLE % f",{_BY}" + r"(?:\.(?P<decimals>[0-9]+))?")
_COMMA = re.compile(_SIGN + r"(?=,?[0-9])" + _WHOLE % f".{_BY}" + r"(?:,(?P<decimals>[0-9]+))?")
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")


def read_answer(cell: Any, kind: AnswerKind | None) -> str:
    """The reference answer that a cell means; raises Unreadable.

    Without a kind it is GSM8K's number after `####` where there is one, else the text as it is.
    """
    text = as_cell_text(cell)
    return extract_gsm8k_answer(text) or text if kind is None else READERS[kind](text)


def as_cell_text(cell: Any) -> str:
    """A cell as text; raises Unreadable for what is blank, or neither text nor number."""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        cell = str(cell)
    if not isinstance(cell, str) or not cell.strip():
        raise Unreadable(f"is {cell!r:.200}; it must be a text")
    return cell


def _after_hashes(text: str) -> str:
    if (answer := extract_gsm8k_answer(text)) is None:
        raise Unreadable(f"ends in {text[-60:]!r}; the answer must stand after ####")
    return answer


def _plain(form: re.Pattern[str], like: str, text: str) -> str:
    """A number without separators, leading zeros (AIME writes 33 as 033) and currency: `1234.5`."""
    number = form.fullmatch(text.strip())
    if number is None:
        raise Unreadable(f"is {text!r:.100}; it must be a number such as {like}")
    whole = re.sub(r"\D", "", number["whole"]).lstrip("0") or "0"
    decimals = f".{number['decimals']}" if number["decimals"] else ""
    return f"{'-' if number['sign'] in ('-', '−') else ''}{whole}{decimals}"


def _letter(place_of: Callable[[str, Sequence[str]], int | None], text: str) -> str:
    place = place_of(text.strip(), LETTERS)
    if place is None:
        raise Unreadable(f"is {text!r:.100}; it must be a choice's letter, or its place from 0")
    return LETTERS[place]


def _by_letter(text: str, choices: Sequence[str]) -> int | None:
    if not (match := _LETTER.fullmatch(text)):
        return None
    place = LETTERS.index(match[1].upper())
    return place if place < len(choices) else None


def _by_index(text: str, choices: Sequence[str]) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) < len(choices) else None


def _by_text(text: str, choices: Sequence[str]) -> int | None:
    places = [place for place, choice in enumerate(choices) if choice.strip() == text]
    return places[0] if len(places) == 1 else None


READERS: Final[Mapping[AnswerKind, Callable[[str], str]]] = {
    "text": lambda text: text,
    "gsm8k": _after_hashes,
    "number": partial(_plain, _NUMBER, "1,234.5"),
    "decimal-comma": partial(_plain, _COMMA, "1.234,5"),
    "letter": partial(_letter, _by_letter),
    "index": partial(_letter, _by_index),
}
"""How each kind reads a cell's text; the last two where the choices are in the question."""


def read_choice(cell: Any, choices: Sequence[str], kind: AnswerKind | None) -> str:
    """The letter of the right one of `choices`; raises Unreadable.

    A cell may hold the letter, the choice's place (from 0, as in MMLU) or its text; `kind` (letter,
    index, text) says which, where more than one could be meant.
    """
    text = as_cell_text(cell).strip()
    readers = {"letter": _by_letter, "index": _by_index, "text": _by_text}
    if kind is not None and kind not in readers:
        raise Unreadable(f"is read as {kind}, but the problem has choices: letter, index or text")
    if kind is None and isinstance(cell, int):
        kind = "index"
    kinds = readers if kind is None else {kind: readers[kind]}
    place_by_kind = {
        name: place for name, of in kinds.items() if (place := of(text, choices)) is not None
    }
    if len(places := set(place_by_kind.values())) == 1:
        return LETTERS[places.pop()]
    if not place_by_kind:
        raise Unreadable(
            f"is {text!r:.100}, which is none of the {len(choices)} choices "
            f"(A to {LETTERS[len(choices) - 1]}, or their texts)"
        )
    readings = " or ".join(
        f"{LETTERS[place]} by its {name}" for name, place in place_by_kind.items()
    )
    raise Unreadable(f"is {text!r:.100}: {readings}; --answers says which (letter, index, text)")


def read_choices(cell: Any) -> list[str]:
    """The choices in one cell: a list, or {"label": [...], "text": [...]}; raises Unreadable."""
    if isinstance(cell, dict) and isinstance(cell.get("text"), list):
        cell = cell["text"]
    if not isinstance(cell, list):
        raise Unreadable(f"is {cell!r:.100}; it must be a list of choices")
    return check_choices(cell)


def check_choices(cells: Sequence[Any]) -> list[str]:
    """Choices as texts; raises Unreadable where there are too few, too many or blank ones."""
    if not 2 <= len(cells) <= len(LETTERS):
        raise Unreadable(f"holds {len(cells)} choices; there must be 2 to {len(LETTERS)}")
    return [as_cell_text(cell).strip() for cell in cells]


def with_letters(question: str, choices: Sequence[str]) -> str:
    """The question as it is asked: with its choices below it, and that a letter answers it."""
    options = "\n".join(
        f"({letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False)
    )
    return f"{question.rstrip()}\n\n{options}\n\nThe final answer is the letter of one choice."
