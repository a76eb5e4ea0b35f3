"""A run's summary, derived from its log and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from tts.runlog.log import Event

from .utilization import Trace, brief


def summarise(config: Event, events: Iterable[Event]) -> Event:
    """What `summary.json` holds.

    `wall_s` adds up the sessions' searching time (no server start, no model load). Mean in-flight
    work is the sum of the requests' durations over the wall time (Little's law); latency, idle
    time, speculation, waste and batches are those of `efficiency`. `accuracy` is by the strategy's
    own rule, `accuracy_by_rule` by each; undecided comparisons count as wrong.
    """
    tally, trace = _Tally(), Trace()
    for event in events:
        tally.add(event)
        trace.add(event)
    wall = tally.wall_s
    solved = sorted(tally.solved.values(), key=lambda event: event["problem"])
    judged = [event for event in solved if event["correct"] is not None]
    rule = config["vote"]
    return {
        "problems": len(solved),
        "accuracy": _share(event["correct"].get(rule) for event in judged),
        "wall_s": round(wall, 3),
        "problems_per_s": round(len(solved) / wall, 4) if wall else None,
        "generated_tokens": tally.generated_tokens,
        "tokens_per_s": round(tally.generated_tokens / wall, 2) if wall else None,
        "generator_calls": tally.generator_calls,
        "verifier_calls": tally.verifier_calls,
        "verifier_cached": tally.verifier_cached,
        "verifier_tokens": tally.verifier_tokens,
        "mean_in_flight": {
            "generator": round(tally.generator_busy_s / wall, 3) if wall else None,
            "verifier": round(tally.verifier_busy_s / wall, 3) if wall else None,
        },
        **brief(trace),
        "strategy": config["strategy"],
        "schedule": config["schedule"],
        "seed": config["seed"],
        "n": config["parameters"]["n"],
        "vote": rule,
        "parameters": config["parameters"],
        "context": config.get("context"),
        "deployment": config["deployment"],
        "dataset": config["dataset"],
        "accuracy_by_rule": _by_rule(judged),
        "pass_at_n": _share(event["any_correct"] for event in judged),
        "accuracy_by_level": accuracy_by_level(judged, rule),
        "undecided": sum(event["undecided"] for event in judged),
        "sessions": tally.sessions,
        "tree_digest": _digest(solved),
        "replay": config.get("replay"),
    }


class _Tally:
    """Running totals over a run's events."""

    def __init__(self) -> None:
        self.solved: dict[str, Event] = {}
        self.sessions = 0
        self.generated_tokens = self.generator_calls = 0
        self.verifier_calls = self.verifier_cached = self.verifier_tokens = 0
        self.generator_busy_s = self.verifier_busy_s = 0.0
        self._earlier_s = self._session_s = 0.0

    @property
    def wall_s(self) -> float:
        return self._earlier_s + self._session_s

    def add(self, event: Event) -> None:
        kind = event["event"]
        if kind == "session":
            self.sessions += 1
            self._earlier_s, self._session_s = self.wall_s, 0.0
            return
        self._session_s = max(self._session_s, event["t"])
        if kind == "generated":
            self.generator_calls += 1
            self.generated_tokens += event["tokens"]
            self.generator_busy_s += event["done"] - event["sent"]
        elif kind == "scored" and event["cached"]:
            self.verifier_cached += 1
        elif kind == "scored":
            self.verifier_calls += 1
            self.verifier_tokens += event["prompt_tokens"]
            self.verifier_busy_s += event["done"] - event["sent"]
        elif kind == "problem_solved":
            self.solved[event["problem"]] = event


def _share(values: Iterable[bool | None]) -> float | None:
    """Fraction of true values; None (no answer by that rule) counts as false."""
    flags = [bool(value) for value in values]
    return round(sum(flags) / len(flags), 4) if flags else None


def _by_rule(judged: list[Event]) -> dict[str, float | None]:
    rules = {rule for event in judged for rule in event["correct"]}
    return {rule: _share(event["correct"].get(rule) for event in judged) for rule in sorted(rules)}


def accuracy_by_level(judged: list[Event], rule: str) -> dict[str, dict[str, Any]]:
    """Problems and accuracy of each level, from `problem_solved` events that have a reference."""
    levels: dict[str, list[Event]] = {}
    for event in judged:
        if event["level"] is not None:
            levels.setdefault(str(event["level"]), []).append(event)
    return {
        level: {
            "problems": len(members),
            "accuracy": _share(event["correct"].get(rule) for event in members),
        }
        for level, members in sorted(levels.items())
    }


def _digest(solved: list[Event]) -> str:
    """One hash over every problem's tree digest and answers, in order of problem id."""
    sha = hashlib.sha256()
    for event in solved:
        answers = [event["answers"][rule] for rule in ("best", "weighted", "majority")]
        sha.update(f"{event['problem']}|{event['tree_digest']}|{answers}\n".encode())
    return sha.hexdigest()
