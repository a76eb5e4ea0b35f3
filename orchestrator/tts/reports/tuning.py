"""What `tts tune` prints: each engine's throughput over load, its saturation point, the budgets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from tts.base.errors import ConfigError
from tts.build.deployment_edit import Field, with_values
from tts.build.spec import ROLES
from tts.lab.tuning.measure import SHARE, EngineResult, Proposal
from tts.lab.tuning.tune import Tuned

from .console import Sheet, say, table

_BAR_WIDTH = 12
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_tuned(out: Console, tuned: Tuned) -> None:
    """Print both engines' tables, the proposed budgets, and where the result is kept."""
    for engine in tuned.engines:
        if engine.proposal:
            out.print()
            out.print(engine_table(engine))
        elif tuned.interrupted:
            say(f"{engine.role}: too few measurements for a table")
        else:
            say(f"{engine.role}: too few measurements in this time; give it more with --seconds")
    if tuned.interrupted:
        say(stopped_sentence(tuned))
    if tuned.proposals:
        out.print()
        if tuned.threads:
            out.print(f"threads: {tuned.threads}", markup=False, soft_wrap=True)
    for proposal in tuned.proposals:
        out.print(proposal_sentence(proposal), markup=False, soft_wrap=True)
    out.print(f"result: {tuned.file}", style="dim", markup=False, soft_wrap=True)


def print_change(out: Console, file: Path, values: Mapping[Field, int]) -> None:
    """Print what changes in a deployment file, as a diff; raises ConfigError."""
    try:
        before = file.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"Cannot read the deployment file {file}: {error}") from error
    after = with_values(before, values)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file), str(file), n=1, lineterm=""
    )
    out.print()
    for line in lines:
        out.print(Text(line, _DIFF_STYLES.get(line[:1], "")), soft_wrap=True)


def engine_table(engine: EngineResult) -> RenderableType:
    """Throughput over load, and the saturation point; at least one level."""
    levels, point = engine.levels, engine.saturation.load
    best = max(level.tokens_per_s for level in levels)
    unit = engine.unit
    measured = (f"{unit}\nin flight", "tokens/s\nmedian", "lowest to\nhighest")
    sheet = table(right=(*measured, "of\nbest", "request\nms"))
    sheet.add_column("", no_wrap=True)
    saturated = next((level.load for level in levels if point and level.load >= point), None)
    for level in levels:
        share = level.tokens_per_s / best
        bar = Text("█" * round(_BAR_WIDTH * share), "green" if share >= SHARE else "blue")
        if level.load == saturated:
            bar.append(" saturated", "bold")
        sheet.add_row(
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
        Text(f"{engine.role}: each load measured {times} times", style="bold"),
        Sheet(sheet),
        Text(saturation_sentence(engine)),
    )


def saturation_sentence(engine: EngineResult) -> str:
    """The saturation point in words."""
    point, unit = engine.saturation, engine.unit
    smallest, largest = engine.levels[0].load, engine.levels[-1].load
    if point.load is None:
        return (
            f"No saturation point was seen: {largest // 2:,} {unit} still fall short of "
            f"{100 * SHARE:.0f}% of the best throughput."
        )
    where = f"at most {smallest:,}" if point.load <= smallest else f"{point.load:,.0f}"
    high = f"{point.high:,.0f}" if point.high else f"beyond {largest / 2:,.0f}"
    return (
        f"Saturation point ({100 * SHARE:.0f}% of the best): {where} {unit}, "
        f"95% interval {point.low or 0:,.0f} to {high}."
    )


def stopped_sentence(tuned: Tuned) -> str:
    """How much was measured until it was stopped, and that nothing follows from it."""
    counts = {engine.role: len(engine.samples) for engine in tuned.engines}
    by_role = " and ".join(f"{counts.get(role, 0)} of the {role}" for role in ROLES)
    return f"Stopped after {sum(counts.values())} measurements ({by_role}): no budget is proposed."


def proposal_sentence(proposal: Proposal) -> str:
    """A proposed budget in words."""
    name = ".".join(proposal.field)
    change = (
        f"{proposal.value:,}, as it is"
        if proposal.value == proposal.present
        else f"{proposal.present:,} -> {proposal.value:,}"
    )
    return f"{name}: {change} ({proposal.why})"
