"""Simulations side by side: schedules (`tts simulate`), placements (`--placements`)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.build.spec import Deployment
from tts.build.tensorrt.gpus import gpus_of
from tts.build.tensorrt.placements import Refused
from tts.engines.simulated import StepTotals
from tts.lab.bench.simulated_run import PlacedRun, PlacementAdvice, advice_of
from tts.lab.simulation.fleet import SIMULATED
from tts.lab.simulation.scenario import Scenario, SimulationOutcome
from tts.runs.statistics import quantile

from .console import Sheet, table
from .figures.charts import count_of

_NOTES = (
    "All of this is simulated: compare the rows of one table; its seconds are not measurements.",
    "busy: share of the time with a step under way; of the orchestrator, spent on calls.",
    "wait: share of a candidate's time in which nothing is done for it.",
    "prompts: tokens computed, and the share of all that was found in the cache.",
    "hit rate: share of the speculative expansions that their search asked for in the end.",
    "batch: requests in a generator step, tokens in a verifier step. time: of one problem.",
)


def outcomes_table(
    scenario: Scenario, strategy: str, outcomes: Sequence[SimulationOutcome]
) -> RenderableType:
    """A row for each outcome of a scenario; at least one. Speed-ups are over lockstep's, if any."""
    headings = (
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
    )
    sheet = table("simulated\nschedule", right=headings)
    sheet.padding = 0
    first = outcomes[0]
    lockstep_s = next((o.wall_s for o in outcomes if o.schedule == "lockstep"), None)
    for outcome in outcomes:
        generator, verifier = outcome.generator, outcome.verifier
        sheet.add_row(
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
        Sheet(sheet),
        Text(),
        *(Text(note, style="dim") for note in notes),
    )


def _title(scenario: Scenario, strategy: str, outcome: SimulationOutcome) -> str:
    # a deployment's names fill a line of their own
    engines = _engines(scenario.deployment)
    if scenario.fits:
        engines = "engines with step times fitted to a tune result, caches as of " + engines
    return (
        f"simulated: {engines}{_place(scenario)}\n"
        f"{strategy}, n={scenario.parameters.n}; {count_of(scenario.problems, 'problem')}, "
        f"{scenario.in_flight} in flight; {outcome.generator.generated_tokens:,} tokens generated"
    )


def _engines(deployment: Deployment) -> str:
    if deployment.name == SIMULATED:
        writes = "that writes " if deployment.critiques else ""
        return f"Llama-3.2-1B and an 8B verifier {writes}"
    engines = [
        f"{spec.checkpoint.name} ({spec.precision})" for spec in deployment.engines().values()
    ]
    return f"{deployment.name}: {' and '.join(engines)}\n"


def _place(scenario: Scenario) -> str:
    deployment = scenario.deployment
    servers = scenario.servers
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


def _prompts(totals: StepTotals) -> str:
    prompt_tokens = totals.computed_tokens + totals.reused_tokens
    reused = totals.reused_tokens / prompt_tokens if prompt_tokens else 0.0
    return f"{totals.computed_tokens / 1e3:,.0f}k ({_percent(reused)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _mean(total: int, count: int) -> str:
    return f"{total / count:,.0f}" if count else "-"


_CALLS = 0.9  # from here on the orchestrator's process holds the engines up


def print_placements(
    out: Console,
    deployment: Deployment,
    gpus: int,
    n: int,
    runs: Sequence[PlacedRun],
    refused: Sequence[Refused],
) -> None:
    """A row for each placement, a column for each concurrency, and the advice in sentences."""
    assert deployment.tensorrt is not None
    machine = f"{gpus} x {deployment.tensorrt.gpu.upper()}"
    out.print(
        f"[bold]simulated[/]: {deployment.name} on {machine}, beam search with n={n}, "
        "schedule decoupled; nothing was run.",
        soft_wrap=True,
    )
    out.print(Sheet(_table(runs)))
    out.print(
        "Simulated problems per minute, and below the median time of a problem. Engines on the "
        "same GPUs take turns: the worst case.",
        soft_wrap=True,
    )
    if any(run.calls > _CALLS for run in runs):
        out.print(
            f"*: the orchestrator's process is busy with calls for more than {_CALLS:.0%} of the "
            "time, so that faster engines gain nothing.",
            soft_wrap=True,
        )
    for one in refused:
        out.print(f"Not possible: {one.placement.text}. {one.reason}", markup=False, soft_wrap=True)
    for sentence in advice_text(advice_of(runs)):
        out.print(sentence, markup=False, soft_wrap=True)


def advice_text(advice: Sequence[PlacementAdvice]) -> list[str]:
    """The advice, a sentence for each placement in it."""
    sentences = []
    for place, one in enumerate(advice):
        first, last = one.concurrencies[0], one.concurrencies[-1]
        if len(advice) == 1:
            when = "At every concurrency that was simulated"
        elif last == 1:
            when = "One problem at a time"
        elif place == 0:
            when = f"Up to about {count_of(last, 'problem')} at a time"
        elif place == len(advice) - 1:
            when = f"From about {count_of(first, 'problem')} at a time on"
        elif first == last:
            when = f"At about {count_of(first, 'problem')} at a time"
        else:
            when = f"From about {first} to {count_of(last, 'problem')} at a time"
        sentences.append(f"{when}: {one.placement.text} (simulated).")
    return sentences


def _table(runs: Sequence[PlacedRun]) -> Table:
    concurrencies = sorted({run.concurrency for run in runs})
    headings = [f"{concurrency:,} at\na time" for concurrency in concurrencies]
    sheet = table("simulated placement", right=headings)
    by_place = {(run.placement, run.concurrency): run for run in runs}
    best = {
        concurrency: max(run.problems_per_min for run in runs if run.concurrency == concurrency)
        for concurrency in concurrencies
    }
    for placement in dict.fromkeys(run.placement for run in runs):
        cells = []
        for concurrency in concurrencies:
            run = by_place[placement, concurrency]
            speed = f"{run.problems_per_min:,.0f}" + "*" * (run.calls > _CALLS)
            if run.problems_per_min == best[concurrency]:
                speed = f"[bold]{speed}[/]"
            cells.append(f"{speed}\n[dim]{run.median_s:,.2f} s[/]")
        sheet.add_row(placement.text, *cells)
    return sheet
