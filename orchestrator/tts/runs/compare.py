"""Runs compared: the rows of each, and each run against the first, problem by problem.

Problems are those that both have solved, with the same id and, as far as the logs hold it, the same
question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from tts.base.errors import RunDamaged, RunError
from tts.search import NodePath

from .config import RunConfig
from .events import StepGenerated
from .folder import SUMMARY, has_finished
from .groups import COMPARISON, is_group, read_members, runs_in, short_names
from .log import read_events
from .measures import ProblemMeasures
from .rows import Row, in_order, rows_of, told_apart
from .run import Run
from .state import ProblemState
from .statistics import gain_of, paired, ratio_of_means


@dataclass(frozen=True)
class Comparison:
    """Runs side by side."""

    folders: list[Path] = field(default_factory=list)
    """The folders that the user named, of runs and of groups."""
    runs: list[Run] = field(default_factory=list)
    """Their runs; those of a group that have not finished are left out."""
    rows: list[Row] = field(default_factory=list)
    unfinished: dict[str, list[str]] = field(default_factory=dict)
    """The strategies whose runs have not finished, by the folder of their group."""
    settings: list[Setting] = field(default_factory=list)
    """In what the runs were asked for differently; empty unless several folders are compared."""
    pairs: list[Pair] = field(default_factory=list)
    """Each run against the first; empty likewise."""
    baseline: str = ""
    """The name of the first run, where it is a baseline."""

    @property
    def names(self) -> list[str]:
        """The ends of the runs' paths, as much as tells them apart; of a baseline its name."""
        names = short_names([run.folder for run in self.runs])
        return [self.baseline, *names[1:]] if self.baseline else names


@dataclass(frozen=True)
class Baseline:
    """A run that others are compared with, such as that of a larger model."""

    folder: Path
    name: str = ""
    """What tables and figures call it; empty: as its deployment is called."""


def compare(
    folders: Sequence[Path],
    baseline: Baseline | None = None,
    finished: Iterable[Run] = (),
    *,
    answers: bool = False,
) -> Comparison:
    """Read runs, groups and folders of runs; compare each with the first if there are several.

    A `baseline` goes before all. The log of a run is read once, unless it is among those that this
    process has `finished`. With `answers`, the rows have theirs. Raises RunError if a folder holds
    neither, or where a run shares no problem with the first.
    """
    by_folder = {run.folder: run for run in finished}
    runs: list[Run] = []
    rows: list[Row] = []
    unfinished = {}
    called = ""
    if baseline:
        runs = [Run.load(baseline.folder)]
        called = baseline.name or runs[0].config.deployment
        votes = {runs[0].config.strategy: runs[0].config.vote}
        rows = [replace(row, name=called) for row in rows_of(runs[0], votes, answers=answers)]
    for folder in folders:
        members, names = _read(folder, by_folder)
        runs += [run for run, _ in members]
        rows += [row for run, votes in members for row in rows_of(run, votes, answers=answers)]
        if is_group(folder) or len(members) > 1:
            unfinished[str(folder)] = names
    rows = told_apart(rows)
    folders = [*([baseline.folder] if baseline else []), *folders]
    several = len(folders) > 1 and len(runs) > 1
    return Comparison(
        folders,
        runs,
        in_order(rows) if unfinished else rows,
        unfinished,
        differing_settings([run.config for run in runs]) if several else [],
        [pair_of(runs[0], other) for other in runs[1:]] if several else [],
        called,
    )


def read_rows(folder: Path, finished: Iterable[Run] = ()) -> list[Row]:
    """The rows of a run, or of a group's finished runs; raises RunError, as `compare`."""
    members, _ = _read(folder, {run.folder: run for run in finished})
    return told_apart([row for run, votes in members for row in rows_of(run, votes)])


def _read(
    folder: Path, finished: Mapping[Path, Run]
) -> tuple[list[tuple[Run, dict[str, str]]], list[str]]:
    """A folder's runs, of a group the finished ones, with votes by strategy; who is unfinished."""

    def load(path: Path) -> Run:
        return finished.get(path) or Run.load(path)

    if not is_group(folder):
        runs = [(load(path), votes) for path, votes in runs_in(folder)]
        return [(run, votes or {run.config.strategy: run.config.vote}) for run, votes in runs], []
    members: list[tuple[Run, dict[str, str]]] = []
    unfinished: list[str] = []
    for member in read_members(folder):
        if has_finished(folder / member.folder):
            members.append((load(folder / member.folder), member.votes))
        else:
            unfinished += [name + member.point for name in member.votes]
    if unfinished and (folder / COMPARISON).exists():
        raise RunDamaged(
            f"The comparison in {folder} was complete, and now lacks the runs of "
            f"{', '.join(unfinished)} or their {SUMMARY}.",
            hint=f"Bring them back, or make them again: tts bench --resume {folder}",
        )
    return members, unfinished


CostName = Literal["generated_tokens", "verifier_tokens", "compute", "seconds"]
_NOT_SETTINGS = (
    *("problem_ids", "problems_digest", "deployment_source", "command"),
    "model_parameters",
)
"""Keys of run.json: problems are matched by themselves, a deployment is known by its digest, as are
its models, and a command line says again what the others do."""
_SAME_TREES = frozenset(
    {"schedule", "speculation", "in_flight", "server", "limit", "problem_ids", "shard"}
)
"""Settings that may differ between runs that grow the same trees."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Something in which runs were asked for differently."""

    name: str
    """Its place in run.json, such as `parameters.temperature`."""
    values: tuple[Any, ...]
    """Its value in each run; None where there is none."""


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
class CostDifference:
    """What a problem took on average, on the judged problems of both runs; on all if none is."""

    name: CostName
    baseline: float
    other: float
    difference: float
    """Other minus baseline."""
    difference_95: tuple[float, float]
    ratio_95: tuple[float, float] | None
    """The interval of other over baseline, from its logarithm, so that no saving is above 100%;
    None where the baseline is 0."""
    problems: int
    """On so many of these: the others' are not known, such as the time of one that was resumed."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A run against the baseline, on the problems that both have solved."""

    baseline: str
    """Folder of the first run."""
    other: str
    """Folder of the run that is compared with it."""
    common: tuple[str, ...]
    """The ids of those problems, in the baseline's order."""
    judged: int
    """How many of them have a reference."""
    right: tuple[int, int]
    """How many of those are right in the baseline, and in the other run."""
    only_baseline: tuple[str, ...]
    """Problems that only the baseline has right."""
    only_other: tuple[str, ...]
    gain: float | None
    """Accuracy of the other run minus the baseline's; None without references."""
    gain_95: tuple[float, float] | None
    p_value: float
    """McNemar's exact test, of both runs being right equally often."""
    costs: tuple[CostDifference, ...]
    trees: Trees | None
    """None where the runs were asked for different trees, or for trees that depend on timing."""


def pair_of(baseline: Run, other: Run) -> Pair:
    """A run against the baseline; raises RunError if they share no problem.

    Problems of unfinished runs that are not solved yet are not counted.
    """
    ours, theirs = baseline.totals.problems, other.totals.problems
    votes = baseline.config.vote, other.config.vote
    common, differ = list[str](), list[str]()
    right: dict[str, tuple[bool, bool]] = {}
    for name, one in ours.items():
        if name not in theirs or one.question != (two := theirs[name]).question:
            continue
        common.append(name)
        if one.correct is not None is not two.correct:
            right[name] = one.right(votes[0]), two.right(votes[1])
        if one.tree_digest != two.tree_digest:
            differ.append(name)
    if not common:
        raise _nothing_in_common(baseline, other)
    ids = [set(run.config.problem_ids) for run in (baseline, other)]
    if not (ids[0] <= ids[1] or ids[1] <= ids[0]):
        raise RunError(
            f"The runs were asked different problems: {baseline.folder} {len(ids[0]):,} of "
            f"{_dataset(baseline.config)}, {other.folder} {len(ids[1]):,} of "
            f"{_dataset(other.config)}, and {len(ids[0] & ids[1]):,} are in both.",
            hint="Compare runs of the same dataset, drawn with the same seed; one may have fewer.",
        )
    only_baseline = tuple(name for name, pair in right.items() if pair == (True, False))
    only_other = tuple(name for name, pair in right.items() if pair == (False, True))
    gain = gain_of(
        {name: two for name, (_, two) in right.items()},
        {name: one for name, (one, _) in right.items()},
    )
    return Pair(
        baseline=str(baseline.folder),
        other=str(other.folder),
        common=tuple(common),
        judged=len(right),
        right=(sum(one for one, _ in right.values()), sum(two for _, two in right.values())),
        only_baseline=only_baseline,
        only_other=only_other,
        gain=gain and gain.mean,
        gain_95=gain and (gain.low, gain.high),
        p_value=gain.p_value if gain else 1.0,
        costs=tuple(_costs((ours[name], theirs[name]) for name in right or common)),
        trees=_trees(baseline, other, differ),
    )


def differing_settings(configs: Sequence[RunConfig]) -> list[Setting]:
    """The differences between the runs' configurations, in the order of run.json."""
    flat = [dict(_flat(config.to_json())) for config in configs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    every = (Setting(name, tuple(each.get(name) for each in flat)) for name in names)
    return [setting for setting in every if any(v != setting.values[0] for v in setting.values)]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if prefix or name not in _NOT_SETTINGS:
            if isinstance(value, dict):
                yield from _flat(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value


def _trees(baseline: Run, other: Run, differ: Sequence[str]) -> Trees | None:
    """`differ` are the common problems whose trees are not the same."""
    configs = (baseline.config, other.config)
    changes = {setting.name for setting in differing_settings(configs)}
    timed = baseline.config.limits.deadline_s is not None
    unseeded = any(remote.reproducible is False for remote in baseline.config.remotes.values())
    if changes - _SAME_TREES or timed or unseeded:
        return None
    first = _first_difference(baseline.folder, other.folder, differ[0]) if differ else None
    return Trees(tuple(differ), first)


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
        if isinstance(event, StepGenerated) and event.problem == problem:
            state.apply(event)
    return {node: thought.ids for node, thought, _, _ in state.thoughts()}


_COSTS: Mapping[CostName, Callable[[ProblemMeasures], float | None]] = {
    "generated_tokens": lambda problem: problem.search_tokens,
    "verifier_tokens": lambda problem: problem.verifier_tokens,
    "compute": lambda problem: problem.compute,
    "seconds": lambda problem: problem.seconds,
}


def _costs(
    problems: Iterable[tuple[ProblemMeasures, ProblemMeasures]],
) -> Iterator[CostDifference]:
    """What a problem takes on average in each of two runs."""
    pairs: dict[CostName, list[tuple[float, float]]] = {name: [] for name in _COSTS}
    for ours, theirs in problems:
        for name, cost_of in _COSTS.items():
            one, two = cost_of(ours), cost_of(theirs)
            if one is not None and two is not None:
                pairs[name].append((one, two))
    for name, costs in pairs.items():
        if difference := paired([two - one for one, two in costs]):
            baseline, other = (sum(each) / len(costs) for each in zip(*costs, strict=True))
            yield CostDifference(
                name=name,
                baseline=baseline,
                other=other,
                difference=difference.mean,
                difference_95=difference.interval_95,
                ratio_95=ratio_of_means(costs),
                problems=difference.count,
            )


def _dataset(config: RunConfig) -> str:
    seed = config.seed if config.dataset_seed is None else config.dataset_seed
    return f"dataset {config.dataset} (seed {seed})"


def _nothing_in_common(baseline: Run, other: Run) -> RunError:
    sides = [(run, run.totals.problems) for run in (baseline, other)]
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
        f"{run.folder} has solved {len(problems)} of {_dataset(run.config)}"
        for run, problems in sides
    )
    return RunError(
        f"The runs have no problem in common: {solved}; {shared}.",
        hint="Compare runs of the same dataset, drawn with the same seed.",
    )
