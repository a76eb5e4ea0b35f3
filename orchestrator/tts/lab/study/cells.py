"""Which runs a study makes: cells, and the figures that need each. Pure.

A cell is one way to run the same problems; it changes one thing of the deployment as it is. Every
cell is run once in each round. Cells with the same engines stand together, so that they share a
server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tts.problem import Problem
from tts.scheduling import ScheduleName, SpeculationName

BASE = "as-deployed"
"""The cell with which all others are compared."""
RESTART_S = 10.0
"""Expected time of a server's start."""
LEAST_PROBLEMS, MOST_PROBLEMS = 4, 64
"""Problems of a cell in one round, where their number is chosen by time."""
_SAME_SHARE = 0.02
"""Divisions that differ by less are one."""
_SERIAL = 1.6
"""How many times longer than several problems at a time one at a time is expected to take."""


@dataclass(frozen=True)
class Form:
    """How much a study measures. Everything else follows from the deployment."""

    rounds: int
    problems: int | None
    """Problems in each cell of a round; None: as many as fit `minutes`."""
    minutes: float | None
    shares: tuple[float, ...]
    """The generator's shares of the KV memory, besides the present one."""
    schedules: tuple[ScheduleName, ...]
    """Schedules besides decoupled."""
    speculations: tuple[SpeculationName, ...]
    """Speculation besides auto."""
    reuse_off: bool
    """Whether engines without prefix reuse are run."""
    in_flight: tuple[int, ...]
    """Limits of the problems at a time, besides none."""
    n_factors: tuple[float, ...]
    """Multiples of the deployment's n, besides n itself."""
    load_s: float
    """Seconds to measure throughput over load, both engines together."""
    n: int | None = None
    """Completions per problem; None: as the deployment says."""


QUICK = Form(
    rounds=2,
    problems=None,
    minutes=7.0,
    shares=(0.05, 0.5, 0.95),
    schedules=("lockstep", "batched", "alternating"),
    speculations=("off", "always"),
    reuse_off=True,
    in_flight=(1, 2, 4),
    n_factors=(0.25, 0.5, 2.0),
    load_s=40.0,
)
FULL = replace(
    QUICK,
    rounds=3,
    problems=48,
    minutes=None,
    shares=(0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95),
    in_flight=(1, 2, 4, 8, 16, 32),
    n_factors=(0.25, 0.5, 2.0, 4.0),
    load_s=120.0,
)


@dataclass(frozen=True)
class CellEngines:
    """What a cell changes of the engines: a server of its own for each of them."""

    share: float | None = None
    """The generator's share of the KV memory; None: as deployed."""
    reuse: bool = True
    """Whether prefixes are reused where the deployment says so."""


@dataclass(frozen=True)
class Cell:
    """One way to run the problems."""

    name: str
    """Its run folders are `runs/NAME-ROUND`."""
    title: str
    n: int
    engines: CellEngines = CellEngines()
    schedule: ScheduleName = "decoupled"
    speculation: SpeculationName = "auto"
    in_flight: int | None = None
    """Problems at a time; None: as many as keep the engines busy."""

    @property
    def work(self) -> float:
        """Expected time of a problem, in units of a problem with n = 1."""
        alone = self.schedule == "lockstep" or self.in_flight == 1
        return self.n * (_SERIAL if alone else 1.0)


@dataclass(frozen=True)
class CellRun:
    """A cell in one round."""

    cell: Cell
    round: int
    """The number of the round; the first is 1."""

    @property
    def folder(self) -> str:
        """The name of its run folder."""
        return f"{self.cell.name}-{self.round}"


def cells_of(
    form: Form,
    *,
    n: int,
    beam_width: int,
    share: float | None,
    reuse: bool,
    problems: int | None = None,
) -> list[Cell]:
    """The cells of a study, those with the same engines side by side, the base first.

    `n` and `beam_width` are those of the deployment's beam search. `share` is the generator's
    present share of the KV memory where servers can be started with others, else None; `reuse`
    says whether they can be started without prefix reuse. Limits of problems in flight that
    `problems` do not reach are left out.
    """
    cells = [Cell(BASE, "as deployed", n)]
    cells += [Cell(name, f"schedule {name}", n, schedule=name) for name in form.schedules]
    cells += [
        Cell(f"speculation-{name}", f"speculation {name}", n, speculation=name)
        for name in form.speculations
    ]
    cells += [
        Cell(f"in-flight-{count}", f"{count} at a time", n, in_flight=count)
        for count in form.in_flight
        if problems is None or count < problems
    ]
    cells += [Cell(f"n-{each}", f"n = {each}", each) for each in _ns(form, n, beam_width)]
    if share is not None:
        cells += [
            Cell(
                f"split-{100 * each:.4g}",
                f"generator {100 * each:.4g}% of the KV memory",
                n,
                CellEngines(share=each),
            )
            for each in form.shares
            if abs(each - share) >= _SAME_SHARE
        ]
    if form.reuse_off and reuse:
        cells.append(Cell("no-prefix-reuse", "without prefix reuse", n, CellEngines(reuse=False)))
    return cells


def steps_of(cells: Sequence[Cell], rounds: int) -> list[CellRun]:
    """Every cell in every round, in the order in which they run.

    Every other round goes backwards, so that a drift of the machine within rounds evens out.
    """
    return [
        CellRun(cell, number + 1)
        for number in range(rounds)
        for cell in (reversed(cells) if number % 2 else cells)
    ]


def problems_of_rounds(
    problems: Sequence[Problem], rounds: int, count: int
) -> list[tuple[Problem, ...]]:
    """Different problems for each round, as many as `count` where there are enough.

    All rounds have as many; `problems` are at least as many as there are rounds.
    """
    each = min(count, len(problems) // rounds)
    return [tuple(problems[number::rounds][:each]) for number in range(rounds)]


def problems_that_fit(form: Form, cells: Sequence[Cell], unit_s: float) -> int:
    """How many problems each cell has in a round, so that the study takes no more than its minutes.

    `unit_s` is what a unit of work takes. Never fewer than LEAST_PROBLEMS, even if that takes
    longer.
    """
    if form.problems is not None or form.minutes is None:
        return form.problems or MOST_PROBLEMS
    steps = steps_of(cells, form.rounds)
    rest = 60 * form.minutes - form.load_s - RESTART_S * starts(steps)
    fitting = int(rest / (unit_s * sum(step.cell.work for step in steps)))
    return max(LEAST_PROBLEMS, min(MOST_PROBLEMS, fitting))


def starts(steps: Iterable[CellRun]) -> int:
    """How often a server is started for steps in this order."""
    return sum(1 for _ in groupby(steps, key=lambda step: step.cell.engines))


def seconds_left(
    remaining: Sequence[CellRun],
    problems: int,
    finished: Mapping[str, float],
    *,
    unit_s: float,
    start_s: float = RESTART_S,
) -> float:
    """Expected time of the remaining steps.

    `finished` has the mean seconds of cells that ran already, by name: the same cell is expected to
    take as long again, another one by its work.
    """
    runs = (finished.get(step.cell.name, unit_s * problems * step.cell.work) for step in remaining)
    return sum(runs) + start_s * starts(remaining)


def _ns(form: Form, n: int, beam_width: int) -> Iterator[int]:
    """Numbers of completions by the form's factors, that beam search allows, without n itself."""
    counts = {round(factor * n / beam_width) * beam_width for factor in form.n_factors}
    yield from sorted(counts - {0, n})
