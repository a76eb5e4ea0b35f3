"""What `tts tune` prints of one engine: a table with a bar for each load, the knee, the policy."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.build.spec import Role
from tts.tuning.analysis import FIELDS, SHARE, UNITS, Knee, Level, Proposal

_BAR = 30


def engine_table(role: Role, levels: Sequence[Level], found: Knee) -> RenderableType:
    """Throughput over load; at least one level."""
    best = max(level.tokens_per_s for level in levels)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for heading in (f"{UNITS[role]}\nin flight", "tokens/s\nmedian", "lowest to\nhighest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("of\nbest", justify="right", no_wrap=True)
    table.add_column("request\nms", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    at = next((level.load for level in levels if found.load and level.load >= found.load), None)
    for level in levels:
        share = level.tokens_per_s / best
        bar = Text("█" * round(_BAR * share), "green" if share >= SHARE else "blue")
        if level.load == at:
            bar.append(" knee", "bold")
        table.add_row(
            f"{level.load:,}",
            f"{level.tokens_per_s:,.0f}",
            f"{level.lowest:,.0f} to {level.highest:,.0f}",
            f"{100 * share:.0f}%",
            f"{1e3 * level.latency_s:,.1f}",
            bar,
        )
    repeats = [level.repeats for level in levels]
    times = f"{min(repeats)}" if min(repeats) == max(repeats) else f"{min(repeats)}-{max(repeats)}"
    return Group(
        Text(f"{role}: each load measured {times} times", style="bold"),
        table,
        Text(knee_sentence(role, found, levels)),
    )


def knee_sentence(role: Role, found: Knee, levels: Sequence[Level]) -> str:
    """The knee in words."""
    unit, largest = UNITS[role], levels[-1].load
    if found.load is None:
        return (
            f"No knee was seen: {largest // 2:,} {unit} still fall short of "
            f"{100 * SHARE:.0f}% of the best throughput."
        )
    first = levels[0].load
    where = f"at most {first:,}" if found.load <= first else f"{found.load:,.0f}"
    high = f"{found.high:,.0f}" if found.high else f"beyond {largest / 2:,.0f}"
    return (
        f"Knee ({100 * SHARE:.0f}% of the best): {where} {unit}, "
        f"95% interval {found.low or 0:,.0f} to {high}."
    )


def proposal_sentence(proposal: Proposal) -> str:
    """A proposed value in words."""
    name = ".".join(FIELDS[proposal.role])
    change = (
        f"{proposal.value:,}, as it is"
        if proposal.value == proposal.present
        else f"{proposal.present:,} -> {proposal.value:,}"
    )
    return f"{name}: {change} ({proposal.why})"
