"""The figures of one run, in the order in which a page shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tts.runs.measured_run import MeasuredRun
from tts.runs.named_measures import named_measures

from . import accuracy, timing, work
from .charts import number, percent
from .figure import Figure


def right_share(run: MeasuredRun) -> str:
    """The share of right answers, and of how many problems if some have no reference."""
    judged = len(run.measures.judged())
    some = judged < len(run.measures.problems)
    return percent(run.accuracy) + f" of the {judged:,} with a reference" * some


def key_measures(run: MeasuredRun) -> Figure | None:
    """Every measure that the run's log gives; None of a run in which nothing has happened."""
    measures = run.measures
    if not measures.wall_s:
        return None
    found = [measure for measure in named_measures(run) if measure.value is not None]
    solved = len(measures.problems)
    judged = run.measures.judged()
    them = " of them" * (len(judged) == solved)
    accuracy = f", {right_share(run)}{them} right" if judged else ""
    return Figure(
        "measures",
        "Measures",
        f"{solved:,} problems in {number(measures.wall_s)} s{accuracy}: "
        f"{number(solved / measures.wall_s)} problems and "
        f"{number(measures.generated_tokens / measures.wall_s)} generated tokens per second.",
        [
            {"measure": measure.name, "value": measure.value, "unit": measure.unit}
            for measure in found
        ],
        notes=["docs/reference/measures.md defines each of them."],
    )


_FIGURES: Sequence[Callable[[MeasuredRun], Figure | None]] = (
    key_measures,
    accuracy.by_level,
    accuracy.by_rule,
    accuracy.pass_over_k,
    accuracy.scores,
    accuracy.calibration,
    work.token_use,
    work.tokens_per_problem,
    timing.latency,
    timing.in_flight_generator,
    timing.in_flight_verifier,
    timing.idle,
    work.requests_by_kind,
    work.speculation,
    work.tokens_per_generator_request,
    work.tokens_per_verifier_request,
    work.tree_shape,
)
"""Each is None of a run that says nothing about it."""


def run_figures(folder: Path) -> list[Figure]:
    """The figures of the run in `folder`, finished or not; raises RunError.

    The log is read once, in memory that grows with the problems and not with the requests.
    """
    return figures_of(MeasuredRun.load(folder))


def figures_of(run: MeasuredRun) -> list[Figure]:
    """The same of a run whose log has been read."""
    return [figure for make in _FIGURES if (figure := make(run))]
