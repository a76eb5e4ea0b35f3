"""The figures of one run, in the order in which a page shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tts.build.spec import ROLES
from tts.runs.named_measures import ALL
from tts.runs.run import Run
from tts.runs.summary import Summary

from . import accuracy, work
from .charts import number
from .figure import Figure
from .results import accuracy_cell

_ALL_WRONG = 10
"""Problems from which on it is remarkable that none is right."""
Make = Callable[[Run], Figure | None]


def right_share(run: Run) -> str:
    """The share of right answers, with its interval and of how many if some have no reference."""
    judged = len(run.totals.judged())
    some = judged < len(run.totals.problems)
    return accuracy_cell(run.accuracy, judged) + f" of the {judged:,} with a reference" * some


def warnings_of(summary: Summary) -> Iterator[str]:
    """What makes a run worthless: no answers, chains without an end, nothing right, no verdicts."""
    if summary.unanswered:
        cut = sum((summary.limited or {}).values())
        yield (
            f"warning: a limit cut off {cut:,} of {summary.problems:,} searches, "
            f"{summary.unanswered:,} of them without any answer. Give a larger limit or a smaller "
            "--n; without --n, --budget-tokens chooses it."
        )
    if 2 * summary.unended > summary.completions:
        limits = [
            f"{name} (now {summary.parameters[name]})"
            for name in ("num_iterations", "max_tokens")
            if name in summary.parameters
        ]
        yield (
            f"warning: {summary.unended:,} of {summary.completions:,} completions did not end: "
            "their chains came to the most steps or tokens, most likely before an answer. Raise "
            + f"{', '.join(limits)} (--set NAME=VALUE) or " * bool(limits)
            + "max_seq_len of the deployment."
        )
    elif summary.accuracy == 0 and (summary.judged or summary.problems) >= _ALL_WRONG:
        yield (
            "warning: no answer is right. The model may not know such problems (the bundled demo "
            "pair knows chains of whole-number operations alone), or it writes its answers "
            "otherwise than the references: read a few trees on the page."
        )
    yield from (f"warning: the verifier: {sentence}" for sentence in summary.verifier or ())
    if 0 < summary.verifier_calls <= summary.no_verdict:
        yield (
            f"warning: {summary.no_verdict:,} critiques for {summary.verifier_calls:,} scores have "
            "no verdict. The page's trees show what the verifier wrote: it may need more "
            "critique.max_tokens, or another verdict or prompt (docs/reference/verifiers.md)."
            if summary.critique_tokens
            else f"warning: the verifier failed on all {summary.no_verdict:,} candidates, which "
            "score 0: the program itself may be wrong."
        )


def key_measures(run: Run) -> Figure | None:
    """Every measure that the run's log gives; None of a run in which nothing has happened."""
    measures = run.totals
    if not measures.wall_s:
        return None
    solved = len(measures.problems)
    right = f", {right_share(run)} right" if measures.judged() else ""
    return Figure(
        "measures",
        "Measures",
        f"{solved:,} problems in {number(measures.wall_s)} s{right}: "
        f"{number(solved / measures.wall_s)} problems and "
        f"{number(measures.generated_tokens / measures.wall_s)} generated tokens per second.",
        [
            {"measure": each.name, "value": value, "unit": each.unit}
            for each in ALL
            if (value := each.value(measures)) is not None
        ],
        notes=["docs/reference/measures.md defines each of them."],
    )


_IN_FLIGHT = [partial(work.in_flight, engine=engine) for engine in ROLES]
FIGURES: Sequence[Make] = (
    key_measures,
    accuracy.by_level,
    accuracy.by_rule,
    accuracy.pass_over_k,
    accuracy.scores,
    accuracy.calibration,
    work.token_use,
    work.tokens_per_problem,
    work.latency,
    *_IN_FLIGHT,
    work.idle,
    work.requests_by_kind,
    work.speculation,
    *(partial(work.tokens_per_request, engine=engine) for engine in ROLES),
    work.tree_shape,
)
"""Each is None of a run that says nothing about it."""
READ: Sequence[Make] = (
    key_measures,
    work.latency,
    *_IN_FLIGHT,
    work.idle,
    work.token_use,
    work.speculation,
)
"""The figures whose readings a terminal shows."""


def figures_of(run: Run, makes: Sequence[Make] = FIGURES) -> list[Figure]:
    """The figures of a run, finished or not."""
    return [figure for make in makes if (figure := make(run))]
