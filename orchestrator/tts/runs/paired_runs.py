"""Runs compared problem by problem: what was asked for differently, and what came of it.

The first run is the baseline. Each other one is compared with it on the problems that both have
solved: the same id and, as far as the logs hold it, the same question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.build.errors import RunError

from .measured_run import MeasuredRun
from .measures import ProblemMeasures
from .statistics import Difference, mcnemar, paired, share_difference_95

_NOT_SETTINGS = ("problem_ids", "deployment_source")
"""Of run.json: the problems are matched by themselves, and a deployment is known by its digest."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Something in which runs were asked for differently."""

    name: str
    """Its place in run.json, such as `parameters.temperature`."""
    values: tuple[Any, ...]
    """Of each run; None where it has no such setting."""


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


@dataclass(frozen=True)
class PairedRun:
    """A run against the baseline, on the problems that both have solved."""

    baseline: MeasuredRun
    other: MeasuredRun
    common: tuple[str, ...]
    """The ids of those problems, in the baseline's order."""
    judged: int
    """Those of them with a reference, which accuracies are about."""
    right: tuple[int, int]
    """Of those, right in the baseline and in the other run."""
    only_baseline: tuple[str, ...]
    """Problems that only the baseline has right."""
    only_other: tuple[str, ...]
    costs: tuple[PairedCost, ...]

    @property
    def gain(self) -> float | None:
        """Accuracy of the other run minus the baseline's; None without references."""
        return (self.right[1] - self.right[0]) / self.judged if self.judged else None

    @property
    def gain_95(self) -> tuple[float, float] | None:
        """Its 95% interval (`paired.share_difference_95`)."""
        if not self.judged:
            return None
        return share_difference_95(len(self.only_other), len(self.only_baseline), self.judged)

    @property
    def p_value(self) -> float:
        """McNemar's, of both runs being right equally often."""
        return mcnemar(len(self.only_baseline), len(self.only_other))


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> list[Setting]:
    """What is not the same in all of the runs' run.json, in its order."""
    flat = [dict(_flat(config)) for config in configs]
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
    same = _same_problem(baseline, other)
    common = [name for name in ours if name in theirs and same(ours[name], theirs[name])]
    if not common:
        raise _nothing_in_common(baseline, other)
    judged = [name for name in common if ours[name].correct is not None is not theirs[name].correct]
    right = {
        name: (ours[name].right(baseline.rule), theirs[name].right(other.rule)) for name in judged
    }
    return PairedRun(
        baseline,
        other,
        tuple(common),
        len(judged),
        (sum(one for one, _ in right.values()), sum(two for _, two in right.values())),
        tuple(name for name, pair in right.items() if pair == (True, False)),
        tuple(name for name, pair in right.items() if pair == (False, True)),
        tuple(_costs([(ours[name], theirs[name]) for name in common])),
    )


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


def _same_problem(
    one: MeasuredRun, other: MeasuredRun
) -> Callable[[ProblemMeasures, ProblemMeasures], bool]:
    drawn_alike = all(
        one.config.get(name) == other.config.get(name) for name in ("dataset", "seed")
    )

    def same(ours: ProblemMeasures, theirs: ProblemMeasures) -> bool:
        if ours.question is None or theirs.question is None:  # logs of older versions
            return drawn_alike
        return ours.question == theirs.question

    return same


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
    questions = {p.question for p in ours.values()} & {p.question for p in theirs.values()} - {None}
    if ids:
        shared = f"{ids} ids are in both, but they name other questions"
    elif questions:
        shared = f"{len(questions)} questions are in both, but under other ids"
    else:
        shared = "no id and no question is in both"
    solved = " and ".join(
        f"{run.folder} has solved {len(problems)} of dataset {run.config['dataset']} "
        f"(seed {run.config['seed']})"
        for run, problems in sides
    )
    return RunError(
        f"The runs have no problem in common: {solved}; {shared}.",
        hint="Compare runs of the same dataset, drawn with the same seed.",
    )
