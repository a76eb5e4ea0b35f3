"""Comparisons of one problem's answers.

Each answer is read once, cheap decisions come first, and one budget holds for all.

The verdicts follow from the answers and their order: what is undecided depends on the CPU time that
reading and comparing takes, never on which worker was free or what other problems asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from .canonical import canonical, is_integer, json_form
from .notation import in_latex
from .readings import is_decimal_comma, is_same_choice, may_be_same_time
from .screen import is_too_costly
from .sketch import Parsed, are_separated
from .units import in_one_measure
from .verdict import Outcome, Reason, Verdict

MAX_ANSWER_CHARS = 2000  # two of them, escaped as JSON, fit the 64 KiB buffer of a pipe
_READ_TOGETHER = 16  # answers between two looks at the budget


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered, and the CPU time it took.

    The content is a `Parsed` answer or a verdict: of a comparison, or the reason that there is
    none.
    """

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
    without a sketch, else the prediction): n such answers cost n overruns and not n squared. When
    the budget is spent, what is not decided by then stays undecided. `spent_s` is the CPU time that
    the workers took for it so far.
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
        answer = self._answers.get(text)
        if answer is None:
            answer = self._answers[text] = _look_at(text)
        return answer

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
