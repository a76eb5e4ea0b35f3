"""Spellings of control tokens in texts of users and models, which must stay text.

A tokenizer takes `<|im_end|>` for the token wherever it stands. So a text that holds such a
spelling is marked before it is put into a prompt (`inert`): a noncharacter in front of each
character of the spelling, which no template can take for its own mark. A prompt with marks is
encoded by a second tokenizer, whose control tokens have names that no text holds; those that the
template wrote are given that name, the marked ones lose their marks. So the ids are exactly what
the tokenizer would give if it knew the template's control tokens from the text's; a prompt without
marks, which almost every one is, is encoded as ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any

from tokenizers import Tokenizer

MARK = "\ufdd0"
"""Stands in front of a character that is text; no text should hold this noncharacter."""
_NAME = "\ufdd2"
_FIRST_NAME = 0xF0000
_MARKED = f"(?:{MARK}.)+"
_IN_BRACKETS = re.compile(r"[^\w\s].*[^\W\d_].*[^\w\s]", re.DOTALL)


def added_controls(added: Iterable[dict[str, Any]]) -> dict[str, bool]:
    """The added tokens of a tokenizer.json that may control a model: whether each is special.

    Others are ordinary text: white space, words.
    """
    return {
        each["content"]: each["special"]
        for each in added
        if each["special"] or _IN_BRACKETS.fullmatch(each["content"])
    }


def longest_first(texts: Collection[str]) -> str:
    """A regular expression of any of these texts, the longest where several fit."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


def inert(text: str, controls: re.Pattern[str], keep: Collection[str]) -> str:
    """A text whose spellings of controls are marked, unless they are to be kept."""

    def marked(spelling: re.Match[str]) -> str:
        if spelling[0] in keep:
            return spelling[0]
        return "".join(MARK + character for character in spelling[0])

    return controls.sub(marked, text)


def plain(text: str) -> str:
    """A text without the marks that `inert` has put there."""
    return (
        re.sub(_MARKED, lambda run: run[0][1::2], text, flags=re.DOTALL) if MARK in text else text
    )


class MarkedTexts:
    """Encodes texts with marks."""

    def __init__(self, specification: dict[str, Any]) -> None:
        """`specification`: the content of a tokenizer.json, of which a copy is changed.

        Raises Exception, as the library does, where it cannot be changed.
        """
        specification = json.loads(json.dumps(specification))
        controls = added_controls(specification["added_tokens"])
        self._names = {
            text: f"{_NAME}{chr(_FIRST_NAME + number)}" for number, text in enumerate(controls)
        }
        for each in specification["added_tokens"]:
            each["content"] = self._named(each["content"])
        model = specification["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {self._named(text): token for text, token in model["vocab"].items()}
        else:
            model["vocab"] = [[self._named(text), score] for text, score in model["vocab"]]
        if model.get("unk_token"):
            model["unk_token"] = self._named(model["unk_token"])
        specification["post_processor"] = None  # it adds special tokens, which is never asked for
        self.tokenizer = Tokenizer.from_str(json.dumps(specification))
        self._parts = re.compile(f"{_MARKED}|{longest_first(controls)}", re.DOTALL)

    def _named(self, text: str) -> str:
        return self._names.get(text, text)

    def named(self, text: str) -> str:
        """A text with marks as `tokenizer` reads it."""
        return self._parts.sub(
            lambda part: part[0][1::2] if part[0][0] == MARK else self._names[part[0]], text
        )
