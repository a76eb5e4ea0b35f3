"""Runs compared: a row for each strategy, derived from summaries and logs.

The tables of it are `tts.reports.comparison`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tts.build.errors import RunDamaged
from tts.strategies.catalog import known_strategy
from tts.strategies.names import STRATEGY_NAMES
from tts.strategies.parameters import default_parameters

from .curves import Point, Shares, WhyDependent, block_shares, points, unit_size, why_dependent
from .events import ProblemSolved
from .folder import SUMMARY, has_finished, read_config
from .groups import COMPARISON, Member, is_group, read_members
from .log import read_events
from .statistics import wilson
from .summary import Summary, accuracy_by_level, read_summary

NoCurve = WhyDependent | Literal["old_log", "no_reference"]
"""Why a row has only its own n: `independence` says so; its log lacks the completions' groups;
there is nothing to compare the answers with."""

_MAY_DIFFER = ("deployment", "dataset", "schedule", "seed", "problems")


@dataclass(frozen=True)
class Row:
    """One strategy's numbers. Strategies that share a run share what it cost."""

    strategy: str
    differs: dict[str, Any]
    """Parameters other than n that are not the strategy's defaults, and limits."""
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
    for member in read_members(folder):
        if has_finished(folder / member.folder):
            rows += _rows_of_run(folder / member.folder, member)
        else:
            unfinished += member.votes
    if unfinished and (folder / COMPARISON).exists():
        raise RunDamaged(
            f"The comparison in {folder} was complete, and now lacks the runs of "
            f"{', '.join(unfinished)} or their {SUMMARY}.",
            hint=f"Bring them back, or make them again: tts bench --resume {folder}",
        )
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


def correct_by_problem(folder: Path, vote: str) -> dict[str, bool | None]:
    """Of each problem that a run has solved, whether its answer is right; None: no reference."""
    return {
        event.problem: None if event.correct is None else event.correct.get(vote)
        for event in _solved(folder)
    }


def make_row(
    summary: Summary, solved: Iterable[ProblemSolved], run: str, strategy: str, vote: str
) -> Row:
    """A row from a run's summary and its solved problems, under a strategy's vote.

    The problems are gone through once, and little is kept of each.
    """
    by_rule = {str(rule): share for rule, share in summary.accuracy_by_rule.items()}
    accuracy = by_rule.get(vote)
    no_curve = _no_curve(summary, strategy, accuracy)
    n, unit = summary.n or 0, unit_size(strategy, summary.parameters)
    right: dict[str, bool] = {}
    by_level: list[tuple[int | str | None, bool]] = []
    shares: list[Shares | None] = []
    for event in solved:
        if event.correct is None:
            continue
        right[event.problem] = bool(event.correct.get(vote))
        by_level.append((event.level, right[event.problem]))
        if no_curve is None:
            shares.append(block_shares(event, n, unit, vote))
    curve = points(shares, n, unit)
    if no_curve is None and curve is None:
        no_curve = "old_log"
    own: tuple[Point, ...] = ()
    if accuracy is not None and summary.pass_at_n is not None:
        own = (Point(n, accuracy, summary.pass_at_n, 1),)
    return Row(
        strategy=strategy,
        differs=_differs(strategy, summary),
        run=run,
        deployment=summary.deployment,
        dataset=summary.dataset,
        schedule=summary.schedule,
        seed=summary.seed,
        n=n,
        vote=vote,
        problems=len(right),
        accuracy=accuracy,
        interval_95=None if accuracy is None else _rounded(wilson(accuracy, len(right))),
        pass_at_n=summary.pass_at_n,
        samples=summary.generator_calls,
        generated_tokens=summary.generated_tokens,
        verifier_calls=summary.verifier_calls,
        wall_s=summary.wall_s,
        accuracy_by_level=accuracy_by_level(by_level),
        accuracy_by_rule=by_rule,
        curve=own if curve is None else tuple(curve),
        no_curve=no_curve,
        right=right,
    )


def _rows_of_run(folder: Path, member: Member) -> list[Row]:
    summary = read_summary(folder)
    return [
        make_row(summary, _solved(folder), str(folder), strategy, vote)
        for strategy, vote in member.votes.items()
    ]


def _solved(folder: Path) -> Iterator[ProblemSolved]:
    return (event for event in read_events(folder) if isinstance(event, ProblemSolved))


def _no_curve(summary: Summary, strategy: str, accuracy: float | None) -> NoCurve | None:
    """Why a run has no curve, as far as its summary shows."""
    if accuracy is None or summary.pass_at_n is None:
        return "no_reference"
    return why_dependent(strategy, summary.parameters, summary.limits)


def _differs(strategy: str, summary: Summary) -> dict[str, Any]:
    known = known_strategy(strategy)
    if known is None:
        return {}
    # logs from before the context was kept had defaults that did not depend on it
    context = summary.context or sys.maxsize
    defaults = default_parameters(known, context, summary.n or 1)
    return {
        name: value
        for name, value in summary.parameters.items()
        if name != "n" and (name not in defaults or value != defaults[name])
    } | (summary.limits or {})


def _rounded(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 4), round(interval[1], 4)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):  # such as a policy
        return "own"
    return Path(value).name if isinstance(value, str) else str(value)
