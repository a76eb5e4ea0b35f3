"""Runs compared: a row for each strategy, derived from summaries and logs. Tables: `tables`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tts.runlog.groups import Member, has_finished, is_group, read_group
from tts.runlog.log import Event, read_config, read_events, read_summary
from tts.strategies.catalog import known_strategy
from tts.strategies.names import STRATEGY_NAMES
from tts.strategies.parameters import default_parameters

from .curves import Point, curve
from .intervals import wilson
from .summary import accuracy_by_level

NoCurve = Literal["dependent", "early_stop", "old_log", "no_reference"]
"""Why a row has only its own n: no part of the search is a smaller one; it stopped at a different
number of completions for each problem; its log lacks the completions' groups; nothing to compare
the answers with."""

_MAY_DIFFER = ("deployment", "dataset", "schedule", "seed", "problems")


@dataclass(frozen=True)
class Row:
    """One strategy's numbers. Strategies that share a run share what it cost."""

    strategy: str
    differs: dict[str, Any]
    """Parameters other than n that are not the strategy's defaults."""
    run: str
    """The run's folder."""
    deployment: str
    dataset: str
    schedule: str
    seed: int
    n: int
    vote: str
    problems: int
    """Solved problems that have a reference: those that accuracies are about."""
    accuracy: float | None
    interval_95: tuple[float, float] | None
    pass_at_n: float | None
    samples: int
    """Generator calls that were made."""
    generated_tokens: int
    verifier_calls: int
    wall_s: float
    accuracy_by_level: dict[str, dict[str, Any]]
    accuracy_by_rule: dict[str, float | None]
    curve: tuple[Point, ...]
    """Ends with the run's own n; nothing else where `no_curve` says why."""
    no_curve: NoCurve | None
    right: dict[str, bool]
    """Of each problem, whether its answer is right."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, without single problems; the run by its folder's name."""
        data = {**asdict(self), "run": Path(self.run).name}
        del data["right"]
        return data


def read_rows(folder: Path) -> tuple[list[Row], list[str]]:
    """The rows of a run, or of a group's finished runs, and the strategies that are unfinished.

    Raises RunError if the folder holds neither, or a single run that has not finished.
    """
    if not is_group(folder):
        config = read_config(folder)
        member = Member(".", {config["strategy"]: config["vote"]}, config["parameters"])
        return _rows_of_run(folder, member), []
    rows: list[Row] = []
    unfinished: list[str] = []
    for member in read_group(folder)[1]:
        if has_finished(folder / member.folder):
            rows += _rows_of_run(folder / member.folder, member)
        else:
            unfinished += member.votes
    return rows, unfinished


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows of several groups: by strategy as they are listed, then by n.

    Each group has its own run of cot, whose n is fixed: the same search is taken once.
    """
    place = {name: index for index, name in enumerate(STRATEGY_NAMES)}
    once: dict[tuple[object, ...], Row] = {}
    for row in rows:
        circumstances = tuple(getattr(row, name) for name in _MAY_DIFFER)
        once.setdefault((label(row, ()), row.n, circumstances), row)
    return sorted(
        once.values(), key=lambda row: (place.get(row.strategy, len(place)), label(row, ()), row.n)
    )


def varying(rows: Sequence[Row]) -> tuple[str, ...]:
    """What of the circumstances (deployment, dataset, ...) is not the same in all rows."""
    return tuple(name for name in _MAY_DIFFER if len({getattr(row, name) for row in rows}) > 1)


def label(row: Row, also: Sequence[str]) -> str:
    """A row's name: its strategy and what is special about it, such as `beam-search (x=2, y)`."""
    special = [
        name if value is True else f"{name}={_plain(value)}" for name, value in row.differs.items()
    ]
    special += [f"{name}={_plain(getattr(row, name))}" for name in also]
    return f"{row.strategy} ({', '.join(special)})" if special else row.strategy


def joined_curves(names: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[int, Point]]:
    """The points by n of each name, from all rows that bear it: several runs make one curve.

    Where two have the same n, the one that averages over more blocks counts.
    """
    joined: dict[str, dict[int, Point]] = {}
    for name, row in zip(names, rows, strict=True):
        points = joined.setdefault(name, {})
        for point in row.curve:
            if point.n not in points or points[point.n].blocks < point.blocks:
                points[point.n] = point
    return joined


def make_row(summary: Event, solved: Sequence[Event], run: str, strategy: str, vote: str) -> Row:
    """A row from a run's summary and its `problem_solved` events, under a strategy's vote."""
    judged = [event for event in solved if event["correct"] is not None]
    accuracy = summary["accuracy_by_rule"].get(vote)
    points, no_curve = _curve(summary, judged, strategy, vote)
    return Row(
        strategy=strategy,
        differs=_differs(strategy, summary),
        run=run,
        deployment=summary["deployment"],
        dataset=summary["dataset"],
        schedule=summary["schedule"],
        seed=summary["seed"],
        n=summary["n"],
        vote=vote,
        problems=len(judged),
        accuracy=accuracy,
        interval_95=None if accuracy is None else _rounded(wilson(accuracy, len(judged))),
        pass_at_n=summary["pass_at_n"],
        samples=summary["generator_calls"],
        generated_tokens=summary["generated_tokens"],
        verifier_calls=summary["verifier_calls"],
        wall_s=summary["wall_s"],
        accuracy_by_level=accuracy_by_level(judged, vote),
        accuracy_by_rule=summary["accuracy_by_rule"],
        curve=points,
        no_curve=no_curve,
        right={event["problem"]: bool(event["correct"].get(vote)) for event in judged},
    )


def _rows_of_run(folder: Path, member: Member) -> list[Row]:
    summary = read_summary(folder)
    solved = {e["problem"]: e for e in read_events(folder) if e["event"] == "problem_solved"}
    return [
        make_row(summary, list(solved.values()), str(folder), strategy, vote)
        for strategy, vote in member.votes.items()
    ]


def _curve(
    summary: Event, judged: Sequence[Event], strategy: str, vote: str
) -> tuple[tuple[Point, ...], NoCurve | None]:
    n, parameters = summary["n"], summary["parameters"]
    accuracy, pass_at_n = summary["accuracy_by_rule"].get(vote), summary["pass_at_n"]
    if accuracy is None or pass_at_n is None:
        return (), "no_reference"
    own = (Point(n, accuracy, pass_at_n, 1),)
    known = known_strategy(strategy)
    independent = known.independent if known else None
    if independent is None:
        return own, "dependent"
    if parameters.get("early_stop"):
        return own, "early_stop"
    unit = parameters["beam_width"] if independent == "subtrees" else 1
    points = curve(judged, n, unit, vote)
    return (own, "old_log") if points is None else (tuple(points), None)


def _differs(strategy: str, summary: Event) -> dict[str, Any]:
    known = known_strategy(strategy)
    if known is None:
        return {}
    # logs from before the context was kept had defaults that did not depend on it
    context = summary.get("context") or sys.maxsize
    defaults = default_parameters(known, context)
    return {
        name: value
        for name, value in summary["parameters"].items()
        if name != "n" and (name not in defaults or value != defaults[name])
    }


def _rounded(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 4), round(interval[1], 4)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return Path(value).name if isinstance(value, str) else str(value)
