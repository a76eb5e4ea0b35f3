"""Comparisons of one problem's answers, their verdicts, and what decides before any worker.

Each answer is read once, cheap decisions come first, and one budget holds for all: what is
undecided depends on the CPU time that reading and comparing takes, never on what other problems
asked.

Some readings are ours and not math-verify's, and hold only where no other one is likely:

- Times of day. math-verify drops the unit and divides: 4:30 a.m., 4:30 p.m. and 2:15 are one.
- Choices. To math-verify "(D) 12 km" is a product, which the letter D does not equal.
- Decimal commas. To math-verify "1,22" is a list of two numbers, as MATH writes them.

A screen spots numbers too large to evaluate, so that the commonest of them cost no worker. It reads
digits and knows no algebra; what it misses meets the worker's deadline and memory cap.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum

from .canonical import canonical, in_latex, is_integer, json_form
from .sketch import Parsed, are_separated
from .units import in_one_measure


class Outcome(StrEnum):
    """Equal, different, or not found out within the limits."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """What decided, or what kept the grader from deciding."""

    NO_ANSWER = "no answer"  # different: nothing to compare
    IDENTICAL = "identical"  # equal: the same characters
    CANONICAL = "canonical"  # equal: the same canonical form
    INTEGERS = "integers"  # different: two plain integers
    JSON = "json"  # different: a JSON answer, and one with another value
    TIMES = "times of day"  # equal or different: two times of day, such as 4:30 p.m.
    CHOICES = "choices"  # equal or different: a letter, and a choice labelled with one
    DECIMAL_COMMA = "decimal comma"  # equal: 1.22, and a reference that writes 1,22
    UNITS = "units"  # different: units that measure different things, such as 5 cm and 5 kg
    INVARIANTS = "invariants"  # different: what equal answers share differs (see sketch)
    MATH = "math-verify"  # equal or different: math-verify compared them
    TEXTS = "texts"  # different: two answers in code, by their text
    TESTS = "tests"  # equal or different: the tests of a code problem were run
    FUNCTION = "function"  # equal or different: a function of the user's own compared them

    TOO_LONG = "too long"  # undecided: longer than any answer
    TOO_COSTLY = "too costly"  # undecided: evaluating it would exhaust any worker
    TIMEOUT = "timeout"  # undecided: reading or comparing it took too much CPU time
    BUDGET = "budget"  # undecided: the problem's answers have used up its CPU time
    MEMORY = "out of memory"  # undecided: the worker's memory cap was reached
    ERROR = "error"  # undecided: math-verify raised
    BROKEN_TESTS = "broken tests"  # undecided: the published solution fails them, too
    CRASHED = "crashed"  # undecided: the worker died, twice


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with its reason.

    Accuracy counts everything but `equal` as wrong; reports count `undecided` apart as well, since
    such a verdict says something about the limits and not about the answer.
    """

    outcome: Outcome
    reason: Reason

    @property
    def equal(self) -> bool:
        """True if the answers were found to be equal."""
        return self.outcome is Outcome.EQUAL

    @property
    def undecided(self) -> bool:
        """True if the grader could not find out."""
        return self.outcome is Outcome.UNDECIDED


MAX_ANSWER_CHARS = 2000  # two of them, escaped as JSON, fit the 64 KiB buffer of a pipe
_READ_TOGETHER = 16  # answers between two looks at the budget


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered, be it the reason why there is no more, and its CPU time."""

    content: Parsed | Verdict
    cpu_s: float


@dataclass(slots=True)
class _Answer:
    """The state of one answer: `limit` is the reason that workers cannot compare it."""

    form: str
    is_integer: bool
    limit: Verdict | None
    parsed: Parsed | None = None


class ProblemGrader:
    """Compares the answers of one problem; made by `Grader.problem`.

    An answer that cannot be read within the limits is undecided against whatever it would have to
    be compared with. When a comparison overruns, one of the two is not compared again (the one
    without a sketch, else the prediction): n such answers cost n overruns and not n squared.
    `spent_s` is the CPU time that the workers took for it so far.
    """

    def __init__(self, ask: Callable[..., Future[Reply]], cpu_s: float) -> None:
        self._ask = ask
        self._cpu_s = cpu_s
        self.spent_s = 0.0
        self._answers: dict[str, _Answer] = {}

    async def read(self, answers: Iterable[str]) -> None:
        """Have the workers read these answers side by side, if any two need a worker at all."""
        distinct: dict[str, str] = {}
        for answer in answers:
            distinct.setdefault(self._known(answer).form, answer)
        states = [self._known(answer) for answer in distinct.values()]
        if len(states) < 2 or all(answer.is_integer for answer in states):
            return
        texts = [text for text in distinct.values() if not self._known(text).limit]
        for start in range(0, len(texts), _READ_TOGETHER):
            if self.spent_s >= self._cpu_s:
                return
            some = texts[start : start + _READ_TOGETHER]
            replies = [self._ask("read", text) for text in some]
            for text, reply in zip(some, replies, strict=True):
                self._note(self._known(text), await _result(reply))

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """See Grader.equal."""
        if prediction is None or not prediction.strip():
            return Verdict(Outcome.DIFFERENT, Reason.NO_ANSWER)
        if prediction == reference:
            return Verdict(Outcome.EQUAL, Reason.IDENTICAL)
        pair = self._known(prediction), self._known(reference)
        for answer in pair:
            if answer.limit and answer.limit.reason is Reason.TOO_LONG:
                return answer.limit
        if pair[0].form == pair[1].form:
            return Verdict(Outcome.EQUAL, Reason.CANONICAL)
        if pair[0].is_integer and pair[1].is_integer:
            return Verdict(Outcome.DIFFERENT, Reason.INTEGERS)
        for same, reason in (
            (may_be_same_time(prediction, reference), Reason.TIMES),
            (is_same_choice(prediction, reference), Reason.CHOICES),
            (is_decimal_comma(prediction, reference) or None, Reason.DECIMAL_COMMA),
        ):
            if same is not None:
                return Verdict(Outcome.EQUAL if same else Outcome.DIFFERENT, reason)
        for answer in pair:
            if answer.limit and not answer.parsed:
                return answer.limit
        quantities = in_one_measure(prediction, reference)
        if quantities is None:
            return Verdict(Outcome.DIFFERENT, Reason.UNITS)
        if quantities != (prediction, reference):
            return await self.equal(*quantities)
        for text, answer in zip((prediction, reference), pair, strict=True):
            if not answer.parsed:
                if self.spent_s >= self._cpu_s:
                    return Verdict(Outcome.UNDECIDED, Reason.BUDGET)
                self._note(answer, await _result(self._ask("read", text)))
            if answer.limit and not answer.parsed:
                return answer.limit
        return await self._compare(prediction, reference)

    async def _compare(self, prediction: str, reference: str) -> Verdict:
        target, gold = self._known(prediction), self._known(reference)
        if target.parsed and gold.parsed and are_separated(target.parsed, gold.parsed):
            return Verdict(Outcome.DIFFERENT, Reason.INVARIANTS)
        if limit := target.limit or gold.limit:
            return limit
        if self.spent_s >= self._cpu_s:
            return Verdict(Outcome.UNDECIDED, Reason.BUDGET)
        reply = await _result(self._ask("compare", prediction, reference))
        self.spent_s += reply.cpu_s
        verdict = reply.content
        assert isinstance(verdict, Verdict)
        if verdict.undecided and verdict.reason is not Reason.ERROR:
            has_sketch = target.parsed is not None and target.parsed.sketch is not None
            culprit = gold if has_sketch and not (gold.parsed and gold.parsed.sketch) else target
            culprit.limit = verdict
        return verdict

    def _known(self, text: str) -> _Answer:
        if text not in self._answers:
            self._answers[text] = _look_at(text)
        return self._answers[text]

    def _note(self, answer: _Answer, reply: Reply) -> None:
        """Keep what a worker read, and charge it: once per problem, also if it was known before."""
        self.spent_s += reply.cpu_s
        if isinstance(reply.content, Parsed):
            answer.parsed = reply.content
        else:
            answer.limit = reply.content


async def _result(reply: Future[Reply]) -> Reply:
    """A reply that others may wait for too: it outlives a caller that is cancelled."""
    if reply.done():
        return reply.result()
    waiting = asyncio.wrap_future(reply)
    # a failure after its caller was cancelled is nobody's: asyncio would warn of it
    waiting.add_done_callback(lambda reply: reply.cancelled() or reply.exception())
    return await asyncio.shield(waiting)


def _look_at(text: str) -> _Answer:
    if len(text) > MAX_ANSWER_CHARS:
        return _Answer(text, False, Verdict(Outcome.UNDECIDED, Reason.TOO_LONG))
    form = canonical(text)
    if json_form(text) is not None:  # equal to what has its form, and to nothing else
        return _Answer(form, False, Verdict(Outcome.DIFFERENT, Reason.JSON))
    limit = Verdict(Outcome.UNDECIDED, Reason.TOO_COSTLY) if is_too_costly(in_latex(text)) else None
    return _Answer(form, is_integer(form), limit)


_WRAPPED = re.compile(r"\\(?:text|mathrm|textrm|textbf|mathbf)\s*\{([^{}]*)\}")
_TIME = re.compile(
    r"(?P<hour>1?\d|2[0-3]):(?P<minute>[0-5]\d)(?:(?P<half>[ap])\.?m\.?)?", re.ASCII | re.IGNORECASE
)
_LETTER = re.compile(r"([A-J])|\(([A-J])\)")
_OPERATOR = r"[-+*/^=<>,;)]|\\(?:cdot|times|div|pm|mp|cup|cap|in|le|leq|ge|geq|ne|neq)(?![A-Za-z])"
_LABELLED = re.compile(
    rf"(?:\(([A-J])\)|([A-J])[.)])(?:\s|~|\\[ ,;:]|\\quad)+(?![\s~]|\\[ ,;:]|{_OPERATOR})(?=.)"
    r"|(?i:option|choice)\s+\(?([A-J])\)?\Z"
)
_COMMA = re.compile(r"(?P<whole>[+-]?\d+)(?:,|\{,\})(?P<decimals>\d+)", re.ASCII)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
_POINT = re.compile(r"-?\d+\.\d+", re.ASCII)


def may_be_same_time(answer: str, other: str) -> bool | None:
    """Whether two times of day may be one; None unless both are and one says a.m. or p.m.

    Without that, "4:30" may as well be a ratio; beside a time it is one in either half of the day.
    """
    one, two = _time(answer), _time(other)
    if one is None or two is None or not (one["half"] or two["half"]):
        return None
    return not _minutes(one).isdisjoint(_minutes(two))


def is_same_choice(answer: str, other: str) -> bool | None:
    """Whether two choices have one letter; None unless one is a letter and one is labelled with it.

    The letter is "D" or "(D)", the labelled one "(D) 12 km", "D) 12 km" or "option D". Two
    labelled ones are left to math-verify, which compares their texts too.
    """
    one, two = _unwrapped(answer), _unwrapped(other)
    for letter, labelled in ((one, two), (two, one)):
        choice, label = _LETTER.fullmatch(letter), _LABELLED.match(labelled)
        if choice and label:
            return (choice[1] or choice[2]) == (label[1] or label[2] or label[3])
    return None


def is_decimal_comma(answer: str, reference: str) -> bool:
    """Whether `answer` is the number that `reference` writes with a decimal comma.

    The answer must have a decimal point, so that any other reading of the reference stays as it is:
    "1,22" may be a list as well. "1,220" is 1220 and never 1.22; "0,220" and "1220,500" have commas
    that cannot part thousands.
    """
    number = _COMMA.fullmatch(reference.strip().strip("$").strip().replace("−", "-"))
    if number is None or _GROUPED.fullmatch(number[0].replace("{,}", ",")):
        return False
    form = canonical(answer)
    value = canonical(f"{number['whole']}.{number['decimals']}")
    return form == value and _POINT.fullmatch(form) is not None


def _time(answer: str) -> re.Match[str] | None:
    if ":" not in answer:
        return None
    text = _WRAPPED.sub(r"\1", answer.strip().strip("$"))
    return _TIME.fullmatch(re.sub(r"\\[,;: ]|[\s~]+", "", text))


def _minutes(time: re.Match[str]) -> set[int]:
    """The minutes since midnight that a time may mean."""
    hour, minute = int(time["hour"]), int(time["minute"])
    if time["half"]:
        afternoon = time["half"].lower() == "p"
        return {(hour % 12 + 12 * afternoon) * 60 + minute}
    hours = {hour} if hour > 12 else {hour % 12, hour % 12 + 12}
    return {hour * 60 + minute for hour in hours}


def _unwrapped(answer: str) -> str:
    r"""An answer without dollars, `\text{...}` around its parts, and a full stop."""
    text = _WRAPPED.sub(r"\1", in_latex(answer).strip().strip("$"))
    return text.strip().removesuffix(".")


MAX_DIGITS = 100_000  # sympy still handles numbers of so many digits in well under a second
_MAX_MAGNITUDE = math.log10(MAX_DIGITS)

# No two neighbours of these patterns match the same character, so none of them backtracks for long.
_POWER = r"\s*(?:\^|\*\*)[\s{(]*"
_TOWER = re.compile(rf"(?<!\d)\d+(?:{_POWER}\d+)+")
_CLIMB = re.compile(_POWER)
_BIG_EXPONENT = re.compile(rf"[)\]]{_POWER}-?\d{{6}}")  # the base is a group, such as (x+1)
_FACTORIAL = re.compile(r"(?<!\d)(?:\d{6,}[\s)}]*!|(?:\d{2,}|[89])!\s*\)+\s*!)")
_BINOMIAL = re.compile(r"binom\s*\{\s*\d{6,}\s*\}\s*\{\s*\d{6}")


def is_too_costly(answer: str) -> bool:
    """True if `answer` spells a power, factorial or binomial with far too many digits."""
    return (
        any(_is_too_high(tower[0]) for tower in _TOWER.finditer(answer))
        or _BIG_EXPONENT.search(answer) is not None
        or _FACTORIAL.search(answer) is not None
        or _BINOMIAL.search(answer) is not None
    )


def _is_too_high(tower: str) -> bool:
    """Whether `a^b^c...` has too many digits; computes no exponent above the limit."""
    base, *levels = _CLIMB.split(tower)
    exponent = 1
    for level in reversed(levels):
        if len(level) > _MAX_MAGNITUDE + 1:
            return True
        if exponent * math.log10(max(int(level), 1)) > _MAX_MAGNITUDE:
            return True
        exponent = int(level) ** exponent
    return len(base) * exponent > MAX_DIGITS
