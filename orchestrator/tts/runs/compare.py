"""Runs compared: a row of numbers for each strategy, and differences problem by problem.

Rows come from summaries and logs of finished runs. In paired differences the first run is the
baseline: each other one is compared with it on the problems that both have solved, with the same id
and, as far as the logs hold it, the same question.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Self

from tts.build.errors import RunDamaged, RunError
from tts.search import NodePath
from tts.strategies.catalog import known_strategy
from tts.strategies.names import STRATEGY_NAMES
from tts.strategies.parameters import default_parameters

from .config import RunConfig, read_run_config
from .curves import Point, Shares, WhyDependent, block_shares, points, unit_size, why_dependent
from .events import Generated, ProblemSolved
from .folder import SUMMARY, has_finished
from .groups import COMPARISON, Member, is_group, read_members
from .log import read_events
from .measured_run import MeasuredRun
from .measures import ProblemMeasures
from .state import ProblemState, RunState, solved_problems
from .statistics import Difference, mcnemar, paired, share_difference_95, wilson
from .summary import Summary, accuracy_by_level, read_summary

NoCurve = WhyDependent | Literal["no_reference"]
"""Why a row has only its own n: what `curves.why_dependent` says; there is nothing to compare the
answers with."""

_NOT_WRITTEN = ("right", "asked", "search")
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
    """Whether the answer of each problem is right."""
    tokens_per_problem: float = 0.0
    """Mean generated tokens; speculative ones that no search asked for are left out."""
    seconds_per_problem: float | None = None
    """Mean seconds from the start of a problem to its answer."""
    budget: dict[str, int | float] = field(default_factory=dict)
    """The mean cost of a problem to which n was fitted."""
    solved: int = 0
    """Problems that the costs are those of, with a reference or without; 0: `problems`."""
    asked: tuple[Hashable, ...] = field(default=(), metadata={"json": False})
    """See `Summary.asked`: rows in which it differs are not compared."""
    search: tuple[Hashable, ...] = field(default=(), metadata={"json": False})
    """See `Summary.search`: where it is equal, runs differ in their schedule at most."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, without single problems; the run by its folder's name."""
        data = {**asdict(self), "run": Path(self.run).name}
        return {name: value for name, value in data.items() if name not in _NOT_WRITTEN}


def read_rows(folder: Path) -> tuple[list[Row], list[str]]:
    """The rows of a run, or of a group's finished runs, and the strategies that are unfinished.

    Raises RunError if the folder holds neither, or a single run that has not finished.
    """
    if not is_group(folder):
        config = read_run_config(folder)
        member = Member(".", {config.strategy: config.vote}, config.parameters)
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

    Each group has its own run of greedy, whose n is fixed: the same search is taken once.
    """
    place = {name: index for index, name in enumerate(STRATEGY_NAMES)}
    once: dict[tuple[object, ...], Row] = {}
    for row in rows:
        circumstances = tuple(getattr(row, name) for name in _MAY_DIFFER)
        once.setdefault((label(row, ()), row.n, circumstances), row)
    return sorted(
        once.values(), key=lambda row: (place.get(row.strategy, len(place)), label(row, ()), row.n)
    )


def asked_alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by what was asked: only those of one list can be compared."""
    alike: dict[tuple[Hashable, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(row.asked, []).append(row)
    return list(alike.values())


def varying(rows: Sequence[Row]) -> tuple[str, ...]:
    """The circumstances (deployment, dataset, ...) that differ between rows."""
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
    """Whether a run's answer to each problem that it has solved is right; None: no reference."""
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
    shares: list[Shares] = []
    for event in solved:
        if event.correct is None:
            continue
        right[event.problem] = bool(event.correct.get(vote))
        by_level.append((event.level, right[event.problem]))
        if no_curve is None:
            shares.append(block_shares(event, n, unit, vote))
    curve = points(shares, n, unit)
    unused = summary.waste.unused_tokens
    own: tuple[Point, ...] = ()
    if accuracy is not None and summary.pass_at_n is not None:
        own = (Point(n, accuracy, summary.pass_at_n, 1),)
    interval = None
    if accuracy is not None and right:  # a summary may stand beside a log that has lost them
        interval = _rounded(wilson(accuracy, len(right)))
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
        interval_95=interval,
        pass_at_n=summary.pass_at_n,
        samples=summary.generator_calls,
        generated_tokens=summary.generated_tokens,
        verifier_calls=summary.verifier_calls,
        wall_s=summary.wall_s,
        accuracy_by_level=accuracy_by_level(by_level),
        accuracy_by_rule=by_rule,
        curve=tuple(curve) or own,
        no_curve=no_curve,
        right=right,
        tokens_per_problem=round((summary.generated_tokens - unused) / max(summary.problems, 1), 1),
        budget=summary.fitted_to or {},
        solved=summary.problems,
        asked=summary.asked,
        search=summary.search,
    )


def _rows_of_run(folder: Path, member: Member) -> list[Row]:
    summary = read_summary(folder)
    rows = []
    for strategy, vote in member.votes.items():
        seconds: list[float] = []
        row = make_row(summary, _solved(folder, seconds), str(folder), strategy, vote)
        mean = round(fmean(seconds), 3) if seconds else None
        rows.append(replace(row, seconds_per_problem=mean))
    return rows


def _solved(folder: Path, seconds: list[float] | None = None) -> Iterator[ProblemSolved]:
    """The solved problems of a run; `seconds` gets what each took from its start."""
    for problem in solved_problems(read_events(folder), RunState(keeps_events=False)):
        if problem.solution:
            if seconds is not None and problem.seconds is not None:
                seconds.append(problem.seconds)
            yield problem.solution


def _no_curve(summary: Summary, strategy: str, accuracy: float | None) -> NoCurve | None:
    """Why a run has no curve, as far as its summary shows."""
    if accuracy is None or summary.pass_at_n is None:
        return "no_reference"
    return why_dependent(strategy, limited=bool(summary.limits))


def _differs(strategy: str, summary: Summary) -> dict[str, Any]:
    known = known_strategy(strategy)
    if known is None:
        return {}
    defaults = default_parameters(known, summary.context or sys.maxsize, summary.n or 1)
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


_NOT_SETTINGS = ("problem_ids", "problems_digest", "deployment_source", "command")
"""Keys of run.json: problems are matched by themselves, a deployment is known by its digest, and a
command line says again what the others do."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Something in which runs were asked for differently."""

    name: str
    """Its place in run.json, such as `parameters.temperature`."""
    values: tuple[Any, ...]
    """Its value in each run; None where there is none."""


@dataclass(frozen=True, slots=True)
class PairedCost:
    """What the problems cost in two runs."""

    name: str
    """Such as `generated tokens`."""
    baseline: float
    """Mean per common problem."""
    other: float
    difference: Difference
    """Other minus baseline."""


_SAME_TREES = frozenset(
    {"schedule", "speculation", "in_flight", "server", "limit", "problem_ids", "shard"}
)
"""Settings that may differ between runs that grow the same trees."""


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The first token, by depth and path, that is another one in the second of two trees."""

    problem: str
    node: NodePath
    token: int
    """Its place in the node's step, from 0."""
    ids: tuple[int | None, int | None]
    """What each tree has there; None where its step has ended."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of two runs that were asked for the same."""

    differ: tuple[str, ...]
    """The problems whose trees are not the same."""
    first: TokenDifference | None
    """In the first of them; None if none differs, or only in scores."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """On which problems of a baseline and of another run the answers are right."""

    judged: int
    """The problems that are compared."""
    right: tuple[int, int]
    """How many of those are right in the baseline, and in the other run."""
    only_baseline: tuple[str, ...]
    """Problems that only the baseline has right."""
    only_other: tuple[str, ...]

    @classmethod
    def of(
        cls, ours: Mapping[str, bool | None], theirs: Mapping[str, bool | None], **more: Any
    ) -> Self:
        """The agreement on the problems of both, by whether each is right, which None is not.

        `ours` are the baseline's answers, `theirs` the other run's; `more` are the fields of a
        subclass.
        """
        pairs = {
            name: (bool(right), bool(theirs[name]))
            for name, right in ours.items()
            if name in theirs
        }
        return cls(
            judged=len(pairs),
            right=(sum(one for one, _ in pairs.values()), sum(two for _, two in pairs.values())),
            only_baseline=tuple(name for name, pair in pairs.items() if pair == (True, False)),
            only_other=tuple(name for name, pair in pairs.items() if pair == (False, True)),
            **more,
        )

    @property
    def difference(self) -> Difference | None:
        """The mean of the other's answers that are right (1 or 0) minus the baseline's."""
        gained, lost = len(self.only_other), len(self.only_baseline)
        same = self.judged - gained - lost
        return paired([1.0] * gained + [-1.0] * lost + [0.0] * same)

    @property
    def gain(self) -> float | None:
        """Accuracy of the other run minus the baseline's; None without references."""
        return (self.right[1] - self.right[0]) / self.judged if self.judged else None

    @property
    def gain_95(self) -> tuple[float, float] | None:
        """Its 95% interval (`statistics.share_difference_95`)."""
        if not self.judged:
            return None
        return share_difference_95(len(self.only_other), len(self.only_baseline), self.judged)

    @property
    def p_value(self) -> float:
        """McNemar's, of both runs being right equally often."""
        return mcnemar(len(self.only_baseline), len(self.only_other))


@dataclass(frozen=True, kw_only=True)
class PairedRun(Agreement):
    """A run against the baseline on the problems that both have solved; those judged are the ones
    with a reference.
    """

    baseline: MeasuredRun
    other: MeasuredRun
    common: tuple[str, ...]
    """The ids of those problems, in the baseline's order."""
    costs: tuple[PairedCost, ...]
    trees: Trees | None
    """None where the runs were asked for different trees, or for trees that depend on timing."""


def differing_settings(configs: Sequence[RunConfig]) -> list[Setting]:
    """The differences between the runs' configurations, in the order of run.json."""
    flat = [dict(_flat(config.to_json())) for config in configs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    found = (Setting(name, tuple(each.get(name) for each in flat)) for name in names)
    return [setting for setting in found if any(v != setting.values[0] for v in setting.values)]


def compare_runs(runs: Sequence[MeasuredRun]) -> list[PairedRun]:
    """Each run after the first against the first; raises RunError for one that shares no problem.

    Problems of unfinished runs that are not solved yet are not counted.
    """
    baseline, *others = runs
    return [_compared(baseline, other) for other in others]


def short_names(folders: Sequence[Path]) -> list[str]:
    """The ends of the folders' paths, as much of each as tells them apart."""
    paths = [folder.resolve().parts for folder in folders]
    deepest = max(map(len, paths), default=1)
    for depth in range(1, deepest):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return [str(folder) for folder in folders]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if prefix or name not in _NOT_SETTINGS:
            if isinstance(value, dict):
                yield from _flat(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value


def _compared(baseline: MeasuredRun, other: MeasuredRun) -> PairedRun:
    ours, theirs = baseline.measures.problems, other.measures.problems
    common = [
        name for name in ours if name in theirs and ours[name].question == theirs[name].question
    ]
    if not common:
        raise _nothing_in_common(baseline, other)
    judged = [name for name in common if ours[name].correct is not None is not theirs[name].correct]
    return PairedRun.of(
        {name: ours[name].right(baseline.rule) for name in judged},
        {name: theirs[name].right(other.rule) for name in judged},
        baseline=baseline,
        other=other,
        common=tuple(common),
        costs=tuple(_costs([(ours[name], theirs[name]) for name in common])),
        trees=_trees(baseline, other, common),
    )


def _trees(baseline: MeasuredRun, other: MeasuredRun, common: Sequence[str]) -> Trees | None:
    configs = (baseline.config, other.config)
    asked = {setting.name for setting in differing_settings(configs)}
    timed = baseline.config.limits.deadline_s is not None
    unseeded = any(remote.reproducible is False for remote in baseline.config.remotes.values())
    if asked - _SAME_TREES or timed or unseeded:
        return None
    ours, theirs = baseline.measures.problems, other.measures.problems
    differ = tuple(n for n in common if ours[n].tree_digest != theirs[n].tree_digest)
    if not differ:
        return Trees((), None)
    return Trees(differ, _first_difference(baseline.folder, other.folder, differ[0]))


def _first_difference(baseline: Path, other: Path, problem: str) -> TokenDifference | None:
    ours, theirs = _steps(baseline, problem), _steps(other, problem)
    for node in sorted(ours.keys() & theirs.keys(), key=lambda path: (len(path), path)):
        for place, ids in enumerate(zip_longest(ours[node], theirs[node])):
            if ids[0] != ids[1]:
                return TokenDifference(problem, node, place, ids)
    return None


def _steps(folder: Path, problem: str) -> dict[NodePath, tuple[int, ...]]:
    state = ProblemState(problem)
    for event in read_events(folder):
        if isinstance(event, Generated) and event.problem == problem:
            state.apply(event)
    return {node: thought.ids for node, thought, _, _ in state.thoughts()}


_COSTS: Mapping[str, Callable[[ProblemMeasures], float | None]] = {
    "generated tokens": lambda problem: problem.tokens,
    "verifier tokens": lambda problem: problem.verifier_tokens,
    "seconds": lambda problem: problem.seconds,
}


def _costs(pairs: Sequence[tuple[ProblemMeasures, ProblemMeasures]]) -> Iterator[PairedCost]:
    for name, cost_of in _COSTS.items():
        costs = [
            (one, other)
            for ours, theirs in pairs
            if (one := cost_of(ours)) is not None and (other := cost_of(theirs)) is not None
        ]
        if difference := paired([other - one for one, other in costs]):
            baseline, other = (sum(each) / len(costs) for each in zip(*costs, strict=True))
            yield PairedCost(name, baseline, other, difference)


def _nothing_in_common(baseline: MeasuredRun, other: MeasuredRun) -> RunError:
    sides = [(run, run.measures.problems) for run in (baseline, other)]
    for run, problems in sides:
        if not problems:
            return RunError(
                f"The run in {run.folder} has not solved any problem yet.",
                hint=f"Continue it: tts bench --resume {run.folder}",
            )
    (_, ours), (_, theirs) = sides
    ids = len(ours.keys() & theirs.keys())
    questions = {p.question for p in ours.values()} & {p.question for p in theirs.values()}
    if ids:
        shared = f"{ids} ids are in both, but they name other questions"
    elif questions:
        shared = f"{len(questions)} questions are in both, but under other ids"
    else:
        shared = "no id and no question is in both"
    solved = " and ".join(
        f"{run.folder} has solved {len(problems)} of dataset {run.config.dataset} "
        f"(seed {run.config.seed})"
        for run, problems in sides
    )
    return RunError(
        f"The runs have no problem in common: {solved}; {shared}.",
        hint="Compare runs of the same dataset, drawn with the same seed.",
    )
