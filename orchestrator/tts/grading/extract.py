r"""The final answer written in a text. Pure, and linear in the length of any text.

A completion states its answer in `\boxed{...}`; a text without a box has no answer. Nothing is
guessed from free text: "the last number" rewards rambling, and makes accuracies incomparable.
"""

from __future__ import annotations

import re

# An escaped character is one token, so that \{ and \\ never look like the braces of a group.
_TOKEN = re.compile(r"\\(?P<box>boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_SPACE = re.compile(r"\s*")

# Without braces only a number or one letter is taken: "put it in \boxed format" is prose.
_UNBRACED = re.compile(r"\s*(?P<answer>-?\d[\d.,/]*|[A-Za-z](?![A-Za-z]))")


def extract_answer(text: str) -> str | None:
    r"""Content of the last complete `\boxed{...}` or `\fbox{...}`, stripped; None if there is none.

    The last box is the one that opens last, so of nested boxes it is the inner one. A box that is
    empty, or cut off before its closing brace, does not count: an earlier complete one stands.
    `\boxed 5` (a number or a single letter without braces) is accepted.
    """
    open_groups: list[int | None] = []  # per open brace: where its content starts if it is a box
    box_brace = -1  # where the brace that opens a box was seen
    answer_start = -1
    answer = None
    for token in _TOKEN.finditer(text):
        if token["box"]:
            brace = _end_of_space(text, token.end())
            if text.startswith("{", brace):
                box_brace = brace
            elif unbraced := _UNBRACED.match(text, token.end()):
                answer_start, answer = token.start(), unbraced["answer"].rstrip(".,/")
        elif token[0] == "{":
            is_box = token.start() == box_brace
            open_groups.append(token.end() if is_box else None)
        elif token[0] == "}" and open_groups:
            start = open_groups.pop()
            if start is not None and start > answer_start:
                content = text[start : token.start()].strip()
                if content:
                    answer_start, answer = start, content
    return answer


def extract_gsm8k_answer(text: str) -> str | None:
    """The number after the last `####` of a GSM8K solution, without thousands commas, or None."""
    _, mark, answer = text.rpartition("####")
    answer = answer.strip().partition("\n")[0].replace(",", "").strip()
    return answer if mark and answer else None


def _end_of_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
