r"""The final answer written in a text. Pure, and linear in the length of any text.

A completion states its answer in `\boxed{...}`; a text without a box has no answer. Nothing is
guessed from free text: "the last number" rewards rambling, and makes accuracies incomparable. Only
`extract_answer_or_number` does, for comparisons with search-and-learn.
"""

from __future__ import annotations

import re

# An escaped character is one token, so that \{ and \\ never look like the braces of a group.
_TOKEN = re.compile(r"\\(?P<box>boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_SPACE = re.compile(r"\s*")

# Without braces only a number or one letter is taken: "put it in \boxed format" is prose.
_UNBRACED = re.compile(r"\s*(?P<answer>-?\d[\d.,/]*|[A-Za-z](?![A-Za-z]))")

_PHRASES = ("he answer is", "final answer is")
_NUMBER = re.compile(r"-?\d*\.?\d+")


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


def extract_answer_or_number(text: str) -> str | None:
    r"""The answer by search-and-learn's rules: most texts without a box have one, too.

    In this order: what stands in `final answer is $...$. I hope`, a box, what follows `he answer
    is`, what follows `final answer is`, the last number. Source: `extract_answer` in its
    qwen_math_parser.py. None where its answer would be an empty text.
    """
    _, quoted, after = text.partition("final answer is $")
    if quoted and "$. I hope" in after:
        found: str | None = after.partition("$. I hope")[0]
    elif "boxed" in text:
        found = extract_answer(text)
    elif phrase := next((each for each in _PHRASES if each in text), None):
        found = text.rpartition(phrase)[2]
    else:
        found = next(iter(_NUMBER.findall(text.replace(",", ""))[-1:]), None)
    return (found or "").strip().rstrip(".").strip() or None


def extract_gsm8k_answer(text: str) -> str | None:
    """The number after the last `####` of a GSM8K solution, without thousands commas, or None."""
    _, mark, answer = text.rpartition("####")
    answer = answer.strip().partition("\n")[0].replace(",", "").strip()
    return answer if mark and answer else None


def _end_of_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
