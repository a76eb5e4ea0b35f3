"""Simulated schedules side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.build.spec import Deployment
from tts.build.tensorrt.gpus import gpus_of
from tts.engines.simulated import Totals
from tts.lab.simulation.pairs import SIMULATED
from tts.lab.simulation.scenario import Outcome, Scenario
from tts.runs.statistics import quantile

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
    # a deployment's names fill a line of their own
    engines = _engines(scenario.deployment)
    if scenario.fits:
        engines = "engines with step times fitted to a tune result, caches as of " + engines
    return (
        f"simulated: {engines}{_place(scenario)}\n"
        f"{strategy}, n={scenario.parameters.n}; {scenario.problems} problems, "
        f"{scenario.in_flight} in flight; {outcome.generator.generated_tokens:,} tokens generated"
    )


def _engines(deployment: Deployment) -> str:
    if deployment.name == SIMULATED:
        return "Llama-3.2-1B and an 8B verifier "
    engines = [
        f"{spec.checkpoint.name} ({spec.precision})" for spec in deployment.engines().values()
    ]
    return f"{deployment.name}: {' and '.join(engines)}\n"


def _place(scenario: Scenario) -> str:
    deployment = scenario.deployment
    servers = sum(group.count for group in scenario.groups)
    several = f"on {servers} servers, each on " if servers > 1 else "on "
    if deployment.tensorrt is None:
        return f"{several}cores of their own"
    gpu = deployment.tensorrt.gpu.upper()
    count = len(gpus_of(deployment))
    devices = [
        sorted(device for replica in spec.placement.replicas for device in replica)
        for spec in deployment.engines().values()
    ]
    if count == 1:
        return f"{several}one {gpu}, {scenario.sharing}"
    if devices == [[0], [1]]:
        return f"{several}2 x {gpu}, one for each engine"
    generator, verifier = (", ".join(map(str, each)) for each in devices)
    shared = f", {scenario.sharing}" if set(devices[0]) & set(devices[1]) else ""
    return f"{several}{count} x {gpu}: generator on {generator}, verifier on {verifier}{shared}"


def _prompts(totals: Totals) -> str:
    asked = totals.computed_tokens + totals.reused_tokens
    reused = totals.reused_tokens / asked if asked else 0.0
    return f"{totals.computed_tokens / 1e3:,.0f}k ({_percent(reused)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _mean(total: int, count: int) -> str:
    return f"{total / count:,.0f}" if count else "-"
