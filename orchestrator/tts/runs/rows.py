"""Rows of a comparison: the numbers of one strategy; sets of rows named, ranked and pooled."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec

from tts.build.spec import ROLES
from tts.strategies.catalog import known_strategy
from tts.strategies.names import STRATEGY_NAMES
from tts.strategies.parameters import default_parameters

from .config import RunConfig
from .curves import Point, WhyDependent, why_dependent
from .run import Run
from .statistics import SIGNIFICANT, Gain, gain_of, holm, wilson
from .summary import Summary, accuracy_by_level, summarise
from .tables import Answer, answers_of

NoCurve = WhyDependent | Literal["no_reference"]
"""Why a row has only its own n: what `curves.why_dependent` says; there is nothing to compare the
answers with."""


_MAY_DIFFER = ("deployment", "dataset", "schedule", "seed", "problems")


_NOT_KEPT = ("right", "answers", "summary", "command", "name")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One strategy's numbers. Strategies that share a run share what it cost."""

    strategy: str
    differs: dict[str, Any]
    """Parameters other than n that are not the strategy's defaults, and limits."""
    run: str
    """The run's folder."""
    command: list[str] = field(default_factory=list)
    """The command line that asked for it, word by word; empty where it is not known."""
    vote: str
    n: int
    budget: dict[str, int | float] = field(default_factory=dict)
    """The mean cost of a problem to which n was fitted."""
    problems: int
    """Solved problems that have a reference: those that accuracies are about."""
    accuracy: float | None
    interval_95: tuple[float, float] | None
    """Wilson's, by problems."""
    pass_at_n: float | None
    name: str = ""
    """The name of a baseline; empty for others, which go by their strategy."""
    tokens_per_problem: float
    """Mean generated tokens of both models; speculative ones that no search asked for are left out.
    Costs are means over the same problems as the accuracy; over all solved ones if none is judged.
    """
    compute_per_problem: float | None = None
    """Mean FLOPs of both models; see docs/reference/measures.md."""
    no_compute: str | None = None
    """Why they are not known."""
    verifier_calls_per_problem: float
    seconds_per_problem: float | None
    """Mean seconds from the start of a problem to its answer."""
    wall_s: float
    accuracy_by_level: dict[str, dict[str, Any]]
    curve: tuple[Point, ...]
    """Ends with the run's own n; nothing else where `no_curve` says why."""
    no_curve: NoCurve | None
    answers: list[Answer] = field(default_factory=list)
    """The answers of the solved problems, by this row's vote; empty unless asked for."""
    summary: Summary
    """The run's summary, under its own vote."""
    right: dict[str, float] = field(default_factory=dict, metadata={"json": False})
    """Whether the answer of each problem is right; with several seeds how often."""

    @property
    def wall_s_per_problem(self) -> float:
        """Wall time over the solved problems."""
        return self.wall_s / max(self.summary.problems, 1)

    def setting(self, name: str) -> Any:
        """The value of a parameter or a limit; None if it has none."""
        return self.differs.get(name, self.summary.parameters.get(name))

    def gain_over(self, other: Row) -> Gain | None:
        """Accuracy minus that of another row, on the problems of both."""
        return gain_of(self.right, other.right)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON, without problems and the summary; the run by the name of its folder."""
        names = (each.name for each in fields(self) if each.name not in _NOT_KEPT)
        data = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        return {**data, "run": Path(self.run).name}


def summary_of(run: Run) -> Summary:
    """The summary of a run, finished or not; raises RunError."""
    return run.summary or summarise(run.config, run.totals)


def rows_of(run: Run, votes: Mapping[str, str], *, answers: bool = False) -> list[Row]:
    """A row for each strategy that a run stands for, with its vote; raises RunError."""
    summary = summary_of(run)
    return [
        _row(run, summary, strategy, vote, list(answers_of(run, vote)) if answers else [])
        for strategy, vote in votes.items()
    ]


def told_apart(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with its value of every parameter that sets rows of its strategy apart.

    That is a default in some of them. Nobody here knows the defaults of a strategy that is not in
    the catalog: of such a strategy it is every parameter with several values.
    """
    parameters: dict[str, list[dict[str, Any]]] = {}
    special: dict[str, set[str]] = {}
    for row in rows:
        parameters.setdefault(row.strategy, []).append(row.summary.parameters)
        unknown = known_strategy(row.strategy) is None
        special.setdefault(row.strategy, set()).update(
            row.summary.parameters if unknown else row.differs
        )

    def apart(row: Row) -> dict[str, Any]:
        return {
            name: value
            for name, value in row.summary.parameters.items()
            if name in row.differs
            or (
                value is not None
                and name in special[row.strategy] - {"n"}
                and any(other.get(name) != value for other in parameters[row.strategy])
            )
        } | row.differs

    return [replace(row, differs=apart(row)) for row in rows]


def _row(run: Run, summary: Summary, strategy: str, vote: str, answers: list[Answer]) -> Row:
    measures = run.totals
    accuracy, right = _accuracy_by(vote, summary), measures.problems.right(vote)
    seconds, compute = array("d"), array("d")
    rated = tokens = calls = 0
    for problem in measures.rated_problems():
        rated += 1
        tokens += problem.search_tokens
        calls += problem.verifier_calls
        if problem.seconds is not None:
            seconds.append(problem.seconds)
        if problem.compute is not None:
            compute.append(problem.compute)
    knows = 0 < len(compute) == rated
    curve, no_curve = _curve(run, summary, strategy, vote)
    return Row(
        strategy=strategy,
        differs=_differs(strategy, summary),
        run=str(run.folder),
        command=run.config.command,
        vote=vote,
        n=summary.n or 0,
        budget=summary.fitted_to or {},
        problems=len(right),
        accuracy=accuracy,
        interval_95=_interval(accuracy, len(right)),
        pass_at_n=summary.pass_at_n,
        tokens_per_problem=round(tokens / max(rated, 1), 1),
        compute_per_problem=fmean(compute) if knows else None,
        no_compute=None if knows else _no_compute(run.config),
        verifier_calls_per_problem=round(calls / max(rated, 1), 1),
        seconds_per_problem=round(fmean(seconds), 3) if seconds else None,
        wall_s=summary.wall_s,
        accuracy_by_level=accuracy_by_level(
            (problem.level, problem.right(vote)) for problem in measures.judged_problems()
        ),
        curve=curve,
        no_curve=no_curve,
        answers=answers,
        summary=summary,
        right=right,
    )


def _accuracy_by(vote: str, summary: Summary) -> float | None:
    return {str(rule): share for rule, share in summary.accuracy_by_rule.items()}.get(vote)


def _no_compute(config: RunConfig) -> str:
    """Why the compute of a run with this configuration is not known."""
    for role in ROLES:
        if role in config.model_parameters:
            continue
        if own := config.functions.get(role):
            return f"the {role} is {own}, which has no size"
        if role in config.remotes:
            return f"no config.json of the {role} is here, which runs elsewhere"
        return f"run.json does not say how large the {role} is"
    return "nothing is solved"


def _curve(
    run: Run, summary: Summary, strategy: str, vote: str
) -> tuple[tuple[Point, ...], NoCurve | None]:
    """The points of a run at its own n and, if it is made of smaller runs, below; or why not."""
    accuracy, n = _accuracy_by(vote, summary), summary.n or 0
    if accuracy is None or summary.pass_at_n is None:
        return (), "no_reference"
    own = (Point(n, accuracy, summary.pass_at_n, 1),)
    if why := why_dependent(strategy, limited=bool(summary.limits)):
        return own, why
    curve = run.totals.curve
    return (curve and curve.points(vote)) or own, None


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows of several groups: by strategy as they are listed, then by n.

    Each group has its own run of greedy, whose n is fixed: the same search is taken once.
    """
    place = {name: index for index, name in enumerate(STRATEGY_NAMES)}
    once: dict[tuple[object, ...], Row] = {}
    for row in rows:
        circumstances = tuple(_circumstance(row, name) for name in _MAY_DIFFER)
        once.setdefault((label(row, ()), row.n, circumstances), row)
    return sorted(
        once.values(), key=lambda row: (place.get(row.strategy, len(place)), label(row, ()), row.n)
    )


def asked_alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by what was asked: only those of one list can be compared."""
    alike: dict[str, list[Row]] = {}
    for row in rows:
        alike.setdefault(row.summary.questions, []).append(row)
    return list(alike.values())


class Rank(NamedTuple):
    """A row beside the best one that it can be ranked with."""

    best: Row
    gain: Gain
    """The row's accuracy minus that of the best."""
    p_value: float
    """Corrected for how many rows are compared with the best (`holm`)."""

    @property
    def significant(self) -> bool:
        """Whether the row is significantly worse."""
        return self.p_value < SIGNIFICANT


def ranks(rows: Sequence[Row]) -> list[Rank | None]:
    """Each row's rank; None for one that can be ranked with no other."""
    bests = [best_rival(row, rows) for row in rows]
    places: list[Rank | None] = [None] * len(rows)
    for best in {id(each): each for each in bests if each}.values():
        gains = {
            place: gain
            for place, row in enumerate(rows)
            if bests[place] is best and (gain := row.gain_over(best))
        }
        others = [place for place in gains if rows[place] is not best]
        p_values = dict(zip(others, holm([gains[each].p_value for each in others]), strict=True))
        for place, gain in gains.items():
            places[place] = Rank(best, gain, p_values.get(place, 1.0))
    return places


def best_rival(row: Row, rows: Iterable[Row]) -> Row | None:
    """The best of those rows that a row can be ranked with, itself among them.

    They were asked the same questions, at the same budget. None of a row without accuracy, and
    where there is no other.
    """
    rivals = [
        each
        for each in rows
        if each.right
        and each.summary.questions == row.summary.questions
        and _allowed(each) == _allowed(row)
    ]
    return best_of(rivals) if row.right and len(rivals) > 1 else None


def _allowed(row: Row) -> dict[str, int | float]:
    """What a problem might cost: on average, or at most."""
    return {**(row.summary.limits or {}), **row.budget}


def varying(rows: Sequence[Row]) -> tuple[str, ...]:
    """The circumstances (deployment, dataset, ...) that differ between rows without a name."""
    rows = [row for row in rows if not row.name]
    return tuple(
        name for name in _MAY_DIFFER if len({_circumstance(row, name) for row in rows}) > 1
    )


def label(row: Row, also: Sequence[str], without: Collection[str] = ()) -> str:
    """A row's name: its strategy and what is special about it, such as `beam-search (x=2, y)`."""
    if row.name:
        return row.name
    special = [
        name if value is True else f"{name}={_plain(value)}"
        for name, value in row.differs.items()
        if name not in without
    ]
    special += [f"{name}={_plain(_circumstance(row, name))}" for name in also]
    return f"{row.strategy} ({', '.join(special)})" if special else row.strategy


def swept(rows: Sequence[Row]) -> list[str]:
    """The numeric parameters, other than n, that have several values in rows alike otherwise."""
    names = dict.fromkeys(
        name for row in rows for name, value in row.differs.items() if _is_number(value)
    )
    parameters = []
    for name in names:
        values: dict[tuple[object, ...], dict[str, object]] = {}
        for row in rows:
            circumstances = [_circumstance(row, each) for each in _MAY_DIFFER]
            alike = (label(row, (), (name,)), row.n, *circumstances)
            value = row.setting(name)
            values.setdefault(alike, {})[repr(value)] = value
        if any(len(each) > 1 and all(map(_is_number, each.values())) for each in values.values()):
            parameters.append(name)
    return parameters


def lone_parameter(rows: Sequence[Row]) -> list[str]:
    """The parameter that was swept, where it is the only one and n was not swept as well.

    A line of a strategy goes along it; of a grid each value has a line.
    """
    names = swept(rows)
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(label(row, (), names), set()).add(row.n)
    return names if len(names) == 1 and all(len(each) == 1 for each in sizes.values()) else []


def pooled(rows: Sequence[Row], hidden: Sequence[str] = ()) -> dict[str, list[Row]]:
    """Rows that were asked alike and have accuracies by name, seeds together.

    The values of `hidden` parameters are no part of a name.
    """
    rows = [row for row in rows if row.accuracy is not None and row.right]
    joined: dict[str, list[Row]] = {}
    for name, seeds in by_setting(rows, hidden):
        joined.setdefault(name, []).append(mean_row(seeds))
    return joined


def by_setting(rows: Sequence[Row], hidden: Sequence[str] = ()) -> list[tuple[str, list[Row]]]:
    """Rows that were asked alike, those of one setting under several seeds together: name, rows.

    They may have fitted another n to the same budget.
    """
    also = [name for name in varying(rows) if name != "seed"]
    together: dict[tuple[object, ...], tuple[str, list[Row]]] = {}
    for row in rows:
        name, budget = label(row, also, hidden), tuple(row.budget.items())
        values = tuple(repr(row.setting(each)) for each in hidden)
        key = (name, budget, budget or row.n, values)
        together.setdefault(key, (name, []))[1].append(row)
    return list(together.values())


def best_of(rows: Iterable[Row]) -> Row:
    """The most accurate row, the cheaper one of equals."""
    return min(rows, key=lambda row: (-(row.accuracy or 0.0), row.tokens_per_problem))


def mean_row(seeds: Sequence[Row]) -> Row:
    """The row of a setting: of several seeds with the mean of each number over them.

    A problem counts once, with its mean: its answers under several seeds are not independent of one
    another, and problems are what intervals are about.
    """
    if len(seeds) == 1:
        return seeds[0]
    answers: dict[str, list[float]] = {}
    for row in seeds:
        for problem, share in row.right.items():
            answers.setdefault(problem, []).append(share)
    right = {problem: fmean(each) for problem, each in answers.items()}
    accuracy = fmean(right.values()) if right else None
    seconds = [s for row in seeds if (s := row.seconds_per_problem) is not None]
    compute = [c for row in seeds if (c := row.compute_per_problem) is not None]
    return replace(
        seeds[0],
        n=round(fmean(row.n for row in seeds)),
        right=right,
        problems=len(right),
        accuracy=accuracy,
        interval_95=_interval(accuracy, len(right)),
        tokens_per_problem=fmean(row.tokens_per_problem for row in seeds),
        compute_per_problem=fmean(compute) if len(compute) == len(seeds) else None,
        verifier_calls_per_problem=fmean(row.verifier_calls_per_problem for row in seeds),
        seconds_per_problem=fmean(seconds) if len(seconds) == len(seeds) else None,
        wall_s=fmean(row.wall_s for row in seeds),
    )


def joined_curves(names: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[int, Point]]:
    """The points by n of each name, from all rows that bear it: several runs make one curve.

    Where two have the same n and seed, that of a run of this n counts, else the one that averages
    over more blocks; seeds are averaged.
    """
    joined: dict[str, dict[int, dict[int, Point]]] = {name: {} for name in names}
    every = [(n, row, point) for n, row in zip(names, rows, strict=True) for point in row.curve]
    for name, row, point in sorted(every, key=lambda e: (e[2].n == e[1].n, e[2].blocks)):
        joined[name].setdefault(point.n, {})[row.summary.seed] = point
    return {
        name: {n: _mean_point(list(seeds.values())) for n, seeds in by_n.items()}
        for name, by_n in joined.items()
    }


def _mean_point(points: Sequence[Point]) -> Point:
    first = points[0]
    accuracy = fmean(point.accuracy for point in points)
    anything = fmean(point.pass_at_n for point in points)
    return Point(first.n, round(accuracy, 4), round(anything, 4), first.blocks)


def _circumstance(row: Row, name: str) -> Any:
    return row.problems if name == "problems" else getattr(row.summary, name)


def _differs(strategy: str, summary: Summary) -> dict[str, Any]:
    entry = known_strategy(strategy)
    if entry is None:
        return {}
    defaults = default_parameters(entry, summary.context or sys.maxsize, summary.n or 1)
    return {
        name: value
        for name, value in summary.parameters.items()
        if name != "n" and (name not in defaults or value != defaults[name])
    } | (summary.limits or {})


def _interval(accuracy: float | None, problems: int) -> tuple[float, float] | None:
    """None without accuracy, or where a summary stands beside a log that has lost its problems."""
    if accuracy is None or not problems:
        return None
    low, high = wilson(accuracy, problems)
    return round(low, 4), round(high, 4)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):  # such as a policy
        return "own"
    return Path(value).name if isinstance(value, str) else str(value)
