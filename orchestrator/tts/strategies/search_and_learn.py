"""How answers are read and voted on by search-and-learn's rules, for comparisons with its code.

Its searches are in `tts.search.search_and_learn`.
"""

from __future__ import annotations

import re

from tts.grading import boxed_answer
from tts.search import SearchConfig
from tts.search.search_and_learn import SemanticsConfig

from .strategy import Ballot, usual_ballot

_PHRASES = ("he answer is", "final answer is")
_NUMBER = re.compile(r"-?\d*\.?\d+")


def ballot_by_semantics(config: SearchConfig) -> Ballot:
    """The ballot of a search whose parameters may ask for search-and-learn's rules."""
    if isinstance(config, SemanticsConfig) and config.literal:
        return Ballot(extract_answer_or_number, as_listed=True)
    return usual_ballot(config)


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
        found = boxed_answer(text)
    elif phrase := next((each for each in _PHRASES if each in text), None):
        found = text.rpartition(phrase)[2]
    else:
        found = next(iter(_NUMBER.findall(text.replace(",", ""))[-1:]), None)
    return (found or "").strip().rstrip(".").strip() or None
