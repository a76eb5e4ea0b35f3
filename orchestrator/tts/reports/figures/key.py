"""The measures of a run as one table, which is the first figure of its page."""

from __future__ import annotations

from tts.runs.measured_run import MeasuredRun
from tts.runs.named_measures import named_measures

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
        notes=["docs/metrics.md defines each of them."],
    )
