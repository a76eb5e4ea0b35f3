"""The trials: what is timed, in which order, and what came of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tts.build.server_kinds import ServerKind
from tts.scheduling import ScheduleName, SpeculationName

SCHEDULES: tuple[ScheduleName, ...] = ("lockstep", "batched", "alternating", "decoupled")
SPECULATIONS: tuple[SpeculationName, ...] = ("off", "auto")
CROWD = 32  # problems in flight where speculation must cost nothing
Part = Literal["walls", "efficiency", "latency", "crowd"]
SATURATED: tuple[Literal["generator", "verifier", "both"], ...] = ("generator", "verifier", "both")

# Seconds for a problem of n=16 under `decoupled`, and for fresh engines: only for the estimate of
# the time that is left, which is scaled by how long everything has really taken so far.
_PROBLEM_S = {"demo": 0.35, "heavy": 2.8}
_SERVER_S = 4.0
_LONGER = {"lockstep": 2.0, "batched": 1.3, "alternating": 1.6, "decoupled": 1.0}


@dataclass(frozen=True)
class Settings:
    """What the trials of one worker have in common."""

    server: ServerKind
    pairs: tuple[str, ...]
    problems: int
    """The most that a trial solves."""
    n: int
    width: int
    seed: int


@dataclass(frozen=True)
class Variant:
    """Where trials are done: in the environment of a checkout, on a kind of server."""

    name: str
    python: Path
    server: ServerKind


@dataclass(frozen=True)
class Trial:
    """One thing to time, on fresh engines.

    `what` is a search; or one engine, or both at once, doing the useful work of the latest search
    of part `walls` under `decoupled`. `speculation` None is the product's default.
    """

    part: Part
    pair: str
    turn: int
    problems: int
    what: Literal["search", "generator", "verifier", "both"] = "search"
    schedule: ScheduleName = "decoupled"
    in_flight: int | None = None
    speculation: SpeculationName | None = None

    @property
    def expected_s(self) -> float:
        """A first guess."""
        each = _PROBLEM_S[self.pair] * _LONGER[self.schedule]
        if self.in_flight == 1:
            each *= _LONGER["lockstep"]
        return self.problems * each + _SERVER_S

    @property
    def name(self) -> str:
        """The trial in words, as the progress line has it."""
        if self.what != "search":
            return f"{self.pair}: {self.what} without dependencies"
        text = f"{self.pair}: {self.schedule}, {self.problems} problems"
        text += f", {self.in_flight} at a time" if self.in_flight else ""
        return text + (f", speculation {self.speculation}" if self.speculation else "")


Measured = dict[str, Any]
"""What is kept of a trial in the JSON file."""


@dataclass(frozen=True)
class Result:
    """A trial that is done."""

    trial: Trial
    measured: Measured
    variant: str = ""
    """The name of where it was done."""


def trials_of(pair: str, parts: Sequence[str], problems: int, rounds: int) -> list[Trial]:
    """All trials of one pair; rounds go forwards and backwards in turn through what is compared."""
    trials = []
    for turn in range(rounds):
        direction = -1 if turn % 2 else 1
        if "walls" in parts or "efficiency" in parts:
            schedules = SCHEDULES if "walls" in parts else SCHEDULES[-1:]
            for schedule in schedules[::direction]:
                trials.append(Trial("walls", pair, turn, problems, schedule=schedule))
                if schedule == "decoupled" and "efficiency" in parts:
                    trials += [
                        Trial("efficiency", pair, turn, problems, what=what) for what in SATURATED
                    ]
        if "latency" in parts:
            single = min(20, max(problems // 3, 1))
            loads: tuple[tuple[Part, int, int], ...] = (
                ("latency", single, 1),
                ("crowd", problems, CROWD),
            )
            for part, count, at_once in loads:
                trials += [
                    Trial(part, pair, turn, count, in_flight=at_once, speculation=speculation)
                    for speculation in SPECULATIONS[::direction]
                ]
    return trials


def left_s(trials: Sequence[Trial], done: int, spent_s: float) -> float:
    """How long the trials after the first `done` may take, judging by how long those took."""
    expected = sum(trial.expected_s for trial in trials[:done])
    return sum(trial.expected_s for trial in trials[done:]) * (spent_s / expected if done else 1.0)


def say(line: str) -> None:
    """Progress."""
    print(f"[bench] {line}", file=sys.stderr, flush=True)
