"""Simulated schedules side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.analysis.statistics import quantile
from tts.engines.simulated import Totals
from tts.simulation.scenario import Outcome, Scenario

from .sheet import Sheet

_NOTES = (
    "All of this is simulated: compare the rows of one table; its seconds are not measurements.",
    "busy: share of the time with a step under way; of the orchestrator, spent on calls.",
    "wait: share of a candidate's time in which nothing is done for it.",
    "prompts: tokens computed, and the share of all that was found in the cache.",
    "hit rate: share of the speculative expansions that their search asked for in the end.",
    "batch: requests in a generator step, tokens in a verifier step. time: of one problem.",
)


def outcomes_table(
    scenario: Scenario, strategy: str, outcomes: Sequence[Outcome]
) -> RenderableType:
    """A row for each outcome of a scenario; at least one. Speed-ups are over lockstep's, if any."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("simulated\nschedule", no_wrap=True)
    for heading in (
        "wall s",
        "speed\nup",
        "busy\ngen",
        "\nver",
        "\norch",
        "wait",
        "prompts\ngen",
        "\nver",
        "batch\ngen",
        "\nver",
        "time\np50 s",
        "\np95 s",
        "hit\nrate",
        "same\ntrees",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    first = outcomes[0]
    lockstep_s = next((o.wall_s for o in outcomes if o.schedule == "lockstep"), None)
    for outcome in outcomes:
        generator, verifier = outcome.generator, outcome.verifier
        table.add_row(
            outcome.schedule,
            f"{outcome.wall_s:,.1f}",
            f"{lockstep_s / outcome.wall_s:.2f}x" if lockstep_s else "-",
            _percent(generator.busy_s / outcome.wall_s),
            _percent(verifier.busy_s / outcome.wall_s),
            _percent(outcome.calls_s / outcome.wall_s),
            _percent(outcome.waiting),
            _prompts(generator),
            _prompts(verifier),
            _mean(generator.request_steps, generator.steps),
            _mean(verifier.computed_tokens, verifier.steps),
            f"{quantile(outcome.latencies_s, 0.5) or 0.0:.2f}",
            f"{quantile(outcome.latencies_s, 0.95) or 0.0:.2f}",
            "-" if outcome.hit_rate is None else _percent(outcome.hit_rate),
            "yes" if outcome.digest == first.digest else "NO",
        )
    speed = sum(o.wall_s for o in outcomes) / sum(o.real_s for o in outcomes)
    notes = (*_NOTES, f"{speed:,.0f} virtual seconds per real second.")
    return Group(
        Text(_title(scenario, strategy, first), style="bold"),
        Text(),
        Sheet(table),
        Text(),
        *(Text(note, style="dim") for note in notes),
    )


def _title(scenario: Scenario, strategy: str, outcome: Outcome) -> str:
    assert scenario.deployment.tensorrt is not None
    gpu = scenario.deployment.tensorrt.gpu.upper()
    place = f"2 x {gpu}, one for each engine" if scenario.gpus > 1 else f"one {gpu}, "
    place += scenario.sharing if scenario.gpus == 1 else ""
    engines = "Llama-3.2-1B and an 8B verifier"
    if scenario.fits:
        engines = "engines with step times fitted to a tune result, caches as of " + engines
    return (
        f"simulated: {engines} on {place}\n"
        f"{strategy}, n={scenario.parameters.n}; {scenario.problems} problems, "
        f"{scenario.in_flight} in flight; {outcome.generator.generated_tokens:,} tokens generated"
    )


def _prompts(totals: Totals) -> str:
    asked = totals.computed_tokens + totals.reused_tokens
    reused = totals.reused_tokens / asked if asked else 0.0
    return f"{totals.computed_tokens / 1e3:,.0f}k ({_percent(reused)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _mean(total: int, count: int) -> str:
    return f"{total / count:,.0f}" if count else "-"
