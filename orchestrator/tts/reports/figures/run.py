"""The figures of one run, in the order in which a page shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tts.runs.measured_run import MeasuredRun

from . import accuracy, key, timing, work
from .figure import Figure

_FIGURES: Sequence[Callable[[MeasuredRun], Figure | None]] = (
    key.key_measures,
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
    work.verifier_batches,
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
