"""A run's summary, derived from its log and nothing else, in one pass."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .events import AnyEvent, Generated, ProblemSolved, Scored, Session
from .folder import Json
from .requests import end_to_end
from .statistics import fraction
from .utilization import Utilization


def summarise(config: Json, events: Iterable[AnyEvent]) -> Json:
    """What `summary.json` holds; `config` is the run's run.json.

    `wall_s` adds up the sessions' searching time (no server start, no model load). Mean in-flight
    work is the sum of the requests' durations over the wall time (Little's law); latency, idle
    time, speculation, waste and batches are those of `utilization`. `accuracy` is by the strategy's
    own rule, `accuracy_by_rule` by each; undecided comparisons count as wrong.
    """
    tally, use = _Tally(), Utilization()
    for began, event in end_to_end(events):
        tally.add(event)
        use.add(event, began)
    use.finish()
    wall = use.wall_s
    solved = [tally.solved[problem] for problem in sorted(tally.solved)]
    judged = [problem for problem in solved if problem.correct is not None]
    rule = config["vote"]
    return {
        "problems": len(solved),
        "accuracy": fraction(_right(problem, rule) for problem in judged),
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
        **use.to_json(),
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
        "pass_at_n": fraction(problem.any_correct for problem in judged),
        "accuracy_by_level": accuracy_by_level(
            (problem.level, _right(problem, rule)) for problem in judged
        ),
        "undecided": sum(problem.undecided for problem in judged),
        "sessions": tally.sessions,
        "tree_digest": _digest(solved),
        "replay": config.get("replay"),
    } | _limits(config, solved)


def _limits(config: Mapping[str, Any], solved: Iterable[_Solved]) -> dict[str, Any]:
    """What limits a run had, and how many searches each ended; nothing of a run without any."""
    if not config.get("limits"):
        return {}
    limited = Counter(problem.limit for problem in solved if problem.limit)
    return {"limits": config["limits"], "limited": dict(limited)}


def accuracy_by_level(
    answers: Iterable[tuple[int | str | None, bool]],
) -> dict[str, dict[str, Any]]:
    """Problems and accuracy of each level, from each problem's level and whether it is right."""
    levels: dict[str, list[bool]] = {}
    for level, right in answers:
        if level is not None:
            levels.setdefault(str(level), []).append(right)
    return {
        level: {"problems": len(rights), "accuracy": fraction(rights)}
        for level, rights in sorted(levels.items())
    }


@dataclass(frozen=True, slots=True)
class _Solved:
    """What is kept of a solved problem: its share of the digest, and how it was graded."""

    digested: bytes
    level: int | str | None
    correct: Mapping[str, bool] | None
    any_correct: bool | None
    undecided: int
    limit: str | None


class _Tally:
    """Running totals over a run's events."""

    def __init__(self) -> None:
        self.solved: dict[str, _Solved] = {}
        self.sessions = 0
        self.generated_tokens = self.generator_calls = 0
        self.verifier_calls = self.verifier_cached = self.verifier_tokens = 0
        self.generator_busy_s = self.verifier_busy_s = 0.0

    def add(self, event: AnyEvent) -> None:
        match event:
            case Session():
                self.sessions += 1
            case Generated():
                self.generator_calls += 1
                self.generated_tokens += event.tokens
                self.generator_busy_s += event.done - event.sent
            case Scored(cached=True):
                self.verifier_cached += 1
            case Scored():
                self.verifier_calls += 1
                self.verifier_tokens += event.prompt_tokens
                self.verifier_busy_s += event.done - event.sent
            case ProblemSolved():
                self.solved[event.problem] = _Solved(
                    _digested(event),
                    event.level,
                    event.correct,
                    event.any_correct,
                    event.undecided,
                    event.limit,
                )


def _right(problem: _Solved, rule: str) -> bool:
    return bool(problem.correct and problem.correct.get(rule))


def _by_rule(judged: list[_Solved]) -> dict[str, float | None]:
    rules = {rule for problem in judged for rule in problem.correct or ()}
    return {rule: fraction(_right(problem, rule) for problem in judged) for rule in sorted(rules)}


def _digested(event: ProblemSolved) -> bytes:
    answers = [event.answers[rule] for rule in ("best", "weighted", "majority")]
    return f"{event.problem}|{event.tree_digest}|{answers}\n".encode()


def _digest(solved: list[_Solved]) -> str:
    """One hash over every problem's tree digest and answers, in order of problem id."""
    sha = hashlib.sha256()
    for problem in solved:
        sha.update(problem.digested)
    return sha.hexdigest()
