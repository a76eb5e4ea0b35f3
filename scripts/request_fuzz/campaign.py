"""Attempts by the thousand, and what must hold of the server meanwhile and afterwards."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tts.engines import wire

from .attempts import Attempt, attempts, shared_streams
from .client import Outcome, answers, connect, deliver
from .requests import valid
from .served import Served

BATCH = 250
"""Attempts between two looks at the server."""
AT_ONCE = 8
FIRST = 1000
"""Attempts after which its memory must not grow much any more."""


@dataclass
class Report:
    """What came of a campaign."""

    outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """How often, by kind of attempt."""
    failures: list[str] = field(default_factory=list)
    """What must not be, a line for each."""
    known_crashes: int = 0
    """How often streams with several requests ended Triton, by its own fault."""
    grown: int = 0
    """Bytes of memory that the server and its stubs have gained since the first thousand."""

    def of(self, outcome: Outcome) -> int:
        """How many calls came out so."""
        return sum(number for (_, o), number in self.outcomes.items() if o is outcome)


def fuzz(
    served: Served,
    number: int,
    seed: int,
    *,
    longest_s: float = 10.0,
    most_growth: int,
    say: Callable[[str], None],
) -> Report:
    """Send `number` attempts and, one at a time, a hundredth as many streams shared by requests.

    The server may die of the latter alone, and only by Triton's known fault; then it must be back.
    """
    report = Report()
    asyncio.run(_fuzz(served, number, seed, longest_s, most_growth, say, report))
    return report


async def _fuzz(
    served: Served,
    number: int,
    seed: int,
    longest_s: float,
    most_growth: int,
    say: Callable[[str], None],
    report: Report,
) -> None:
    drawn = islice(attempts(seed), number)
    before: dict[str, int] = {}
    done = 0
    while batch := list(islice(drawn, BATCH)):
        await _send(served, batch, longest_s, report)
        await _require_alive(served, report, f"attempts {done} to {done + len(batch) - 1}")
        done += len(batch)
        now = served.resident()
        if done <= FIRST:
            before = now
        report.grown = max(report.grown, sum(now.values()) - sum(before.values()))
        sizes = ", ".join(f"{name} {size >> 20}" for name, size in now.items())
        say(f"{done} attempts; MiB: {sizes}")
    if report.grown > most_growth:
        report.failures.append(f"memory grew by {report.grown >> 20} MiB")
    for place, attempt in enumerate(islice(shared_streams(seed), number // 100)):
        await _send(served, [attempt], longest_s, report)
        await _require_alive(served, report, f"shared stream {place}", may_die=True)


async def _send(served: Served, batch: Sequence[Attempt], longest_s: float, report: Report) -> None:
    some = asyncio.Semaphore(AT_ONCE)
    async with connect(served.wait().addresses.grpc) as channel:

        async def send(attempt: Attempt) -> None:
            async with some:
                outcomes = await deliver(channel, attempt, longest_s)
            report.outcomes.update((attempt.kind, outcome) for outcome in outcomes)
            if Outcome.HUNG in outcomes:
                report.failures.append(f"no answer within {longest_s} s: {_described(attempt)}")
            if attempt.closed and Outcome.ANSWERED in outcomes:
                report.failures.append(f"a closed API answered: {_described(attempt)}")

        await asyncio.gather(*map(send, batch))


async def _require_alive(
    served: Served, report: Report, after: str, *, may_die: bool = False
) -> None:
    """Wait until both models answer, and count what has died meanwhile."""
    deadline = time.monotonic() + 90
    while not await _both_answer(served):
        if time.monotonic() > deadline:
            report.failures.append(f"the models do not answer after {after}")
            return
        await asyncio.sleep(0.1)
    new = served.new_deaths()
    known = may_die and served.crash_is_known() and not any("stub" in line for line in new)
    if known:
        report.known_crashes += len(new)
    else:
        report.failures += [f"after {after}: {line}" for line in new]


async def _both_answer(served: Served) -> bool:
    async with connect(served.wait().addresses.grpc) as channel:
        return all(
            [
                await answers(channel, valid(model), stream=model == wire.GENERATOR, limit_s=10.0)
                for model in (wire.GENERATOR, wire.PRM)
            ]
        )


def _described(attempt: Attempt) -> str:
    sizes = [len(message) for message in attempt.messages]
    return f"{attempt.kind}, {attempt.method}, messages of {sizes} bytes"
