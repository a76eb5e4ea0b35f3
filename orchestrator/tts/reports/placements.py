"""What `tts plan --concurrency` prints: placements side by side, and which to take when."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tts.build.spec import Deployment
from tts.build.tensorrt.placements import Refused
from tts.lab.bench.simulated_run import Advice, PlacedRun, advice_of

from .sheet import Sheet

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


def advice_text(advice: Sequence[Advice]) -> list[str]:
    """The advice, a sentence for each placement in it."""
    sentences = []
    for place, one in enumerate(advice):
        first, last = one.concurrencies[0], one.concurrencies[-1]
        if len(advice) == 1:
            when = "At every concurrency that was simulated"
        elif last == 1:
            when = "One problem at a time"
        elif place == 0:
            when = f"Up to about {_problems(last)} at a time"
        elif place == len(advice) - 1:
            when = f"From about {_problems(first)} at a time on"
        elif first == last:
            when = f"At about {_problems(first)} at a time"
        else:
            when = f"From about {first} to {_problems(last)} at a time"
        sentences.append(f"{when}: {one.placement.text} (simulated).")
    return sentences


def _problems(count: int) -> str:
    return f"{count:,} problems"


def _table(runs: Sequence[PlacedRun]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("simulated placement")
    concurrencies = sorted({run.concurrency for run in runs})
    for concurrency in concurrencies:
        table.add_column(f"{concurrency:,} at\na time", justify="right", no_wrap=True)
    found = {(run.placement, run.concurrency): run for run in runs}
    best = {
        concurrency: max(run.problems_per_min for run in runs if run.concurrency == concurrency)
        for concurrency in concurrencies
    }
    for placement in dict.fromkeys(run.placement for run in runs):
        cells = []
        for concurrency in concurrencies:
            run = found[placement, concurrency]
            speed = f"{run.problems_per_min:,.0f}" + "*" * (run.calls > _CALLS)
            if run.problems_per_min == best[concurrency]:
                speed = f"[bold]{speed}[/]"
            cells.append(f"{speed}\n[dim]{run.median_s:,.2f} s[/]")
        table.add_row(placement.text, *cells)
    return table
