"""Tables of what was measured, made from the results alone: also from some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.reports.sheet import sparkline
from tts.runs.statistics import quantile

from .trials import SCHEDULES, Measured, Result

AIMS = {  # wall over decoupled's, at least
    ("demo", "lockstep"): 2.0,
    ("demo", "batched"): 1.2,
    ("heavy", "lockstep"): 2.0,
}
EFFICIENCY_AIM = 0.92
LATENCY_AIM = 1.2
CROWD_AIM = 1.02
CPU_AIM_MS = 0.5


def tables(results: Sequence[Result]) -> RenderableType:
    """Everything that there are results for: of each variant by itself, then side by side."""
    parts = [walls, efficiency, latency, cpu, engines, speculation]
    variants = list(dict.fromkeys(result.variant for result in results))
    made: list[RenderableType] = []
    for variant in variants:
        if len(variants) > 1:
            made.append(Text(f"\n{variant}", "bold"))
        own = [result for result in results if result.variant == variant]
        made += [table for part in parts if (table := part(own)).row_count]
    for other in variants[1:]:
        made.append(compared(results, variants[0], other))
    return Group(*made, Text(_digests(results)), Text(_others(results)))


def compared(results: Sequence[Result], first: str, other: str) -> Table:
    """One variant over the first, trial by trial of the same round."""
    table = _table(f"{other} over {first}", "run", "rounds", "wall", "CPU")
    by_name: dict[str, list[tuple[Measured, Measured]]] = defaultdict(list)
    yardstick = {result.trial: result.measured for result in results if result.variant == first}
    for result in results:
        if result.variant == other and (before := yardstick.get(result.trial)):
            by_name[result.trial.name].append((result.measured, before))
    for name, both in by_name.items():
        table.add_row(
            name,
            str(len(both)),
            _spread([now["wall_s"] / before["wall_s"] for now, before in both]),
            _spread([_cpu_s(now) / _cpu_s(before) for now, before in both]),
        )
    return table


def limit_s(generator: Measured, verifier: Measured, both: Measured) -> float:
    """The shortest time in which the engines could do a run's useful work on their machine.

    Neither engine can do its own faster than alone, with as much in flight as allowed and nothing
    to wait for. But alone an engine has the whole machine: its server and its client compute beside
    it. Together the two need more of that than there may be; cores do no more than a second of work
    a second, so the CPU time of both at once (engines, server and client, without any search),
    divided by the cores, is a limit as well. On two cores it is the larger one for small models.

    What a search costs beyond this (scheduling, its own requests, smaller batches, speculation) is
    no part of the limit, as a better program would spend less of it.
    """
    return float(max(generator["wall_s"], verifier["wall_s"], _cpu_s(both) / both["cores"]))


def walls(results: Sequence[Result]) -> Table:
    """Wall time of each schedule, and over decoupled's of the same round."""
    table = _table("wall time", "pair", "schedule", "wall s", "over decoupled", "aim", "met")
    for pair, schedule, members in _searches(results):
        ratios = _over_decoupled(results, pair, members)
        aim = AIMS.get((pair, schedule))
        table.add_row(
            f"{pair}, {members[0].trial.problems} problems",
            schedule,
            f"{median(_walls(members)):,.1f}",
            _spread(ratios),
            f">= {aim}" if aim else "",
            _met(ratios, aim, lambda ratio, aim: ratio >= aim),
        )
    return table


def efficiency(results: Sequence[Result]) -> Table:
    """What the engines need for the useful work, against decoupled's wall time.

    Both at once, in wall time, show what is possible beside the limit (`limit_s`), which not even
    they may reach.
    """
    table = _table(
        "useful work of decoupled without dependencies, each engine alone and both at once",
        "pair", "generator s", "verifier s", "both s", "their CPU s\nby cores", "decoupled s",
        "limit /\ndecoupled", "aim", "met", "both /\ndecoupled",
    )  # fmt: skip
    for pair in _pairs(results):
        alone: dict[str, dict[int, Measured]] = defaultdict(dict)
        for result in results:
            trial = result.trial
            if trial.pair == pair and trial.part in ("walls", "efficiency"):
                name = trial.schedule if trial.what == "search" else trial.what
                alone[name][trial.turn] = result.measured
        columns = [alone[name] for name in ("generator", "verifier", "both", "decoupled")]
        generator, verifier, both, _ = columns
        turns = sorted(set.intersection(*map(set, columns)))
        if not turns:
            continue
        walls = [[each[turn]["wall_s"] for turn in turns] for each in columns]
        computed = [_cpu_s(both[turn]) / both[turn]["cores"] for turn in turns]
        limits = [limit_s(generator[turn], verifier[turn], both[turn]) for turn in turns]
        ratios = [limit / wall for limit, wall in zip(limits, walls[-1], strict=True)]
        shown = [*walls[:-1], computed, walls[-1]]
        table.add_row(
            pair,
            *(f"{median(each):,.1f}" for each in shown),
            _spread(ratios),
            f">= {EFFICIENCY_AIM}",
            _met(ratios, EFFICIENCY_AIM, lambda ratio, aim: ratio >= aim),
            _spread([one / other for one, other in zip(walls[-2], walls[-1], strict=True)]),
        )
    return table


def latency(results: Sequence[Result]) -> Table:
    """Speculation: a problem alone on an idle server, and many at a time."""
    table = _table(
        "speculation off and auto", "pair", "at a\ntime", "", "off s", "auto s", "ratio",
        "aim", "met",
    )  # fmt: skip
    for pair in _pairs(results):
        single, crowd = (_off_and_auto(results, pair, part) for part in ("latency", "crowd"))
        for name, share in (("median", 0.5), ("p95", 0.95)):
            times = [
                [quantile(measured["latencies_s"], share) or 0.0 for measured in each]
                for each in single
            ]
            ratios = [off / auto for off, auto in zip(*times, strict=True) if auto]
            if ratios:
                met = _met(ratios, LATENCY_AIM, lambda ratio, aim: ratio >= aim)
                table.add_row(
                    pair, "1", f"{name} of a problem, off / auto",
                    *(f"{median(each):.2f}" for each in times),
                    _spread(ratios), f">= {LATENCY_AIM}", met,
                )  # fmt: skip
        times = [[measured["wall_s"] for measured in each] for each in crowd]
        ratios = [auto / off for off, auto in zip(*times, strict=True)]
        if ratios:
            at_once = next(r.trial.in_flight for r in results if r.trial.part == "crowd")
            met = _met(ratios, CROWD_AIM, lambda ratio, aim: ratio <= aim)
            table.add_row(
                pair, str(at_once), "wall of all, auto / off",
                *(f"{median(each):.1f}" for each in times),
                _spread(ratios), f"<= {CROWD_AIM}", met,
            )  # fmt: skip
    return table


def cpu(results: Sequence[Result]) -> Table:
    """Seconds of each process; the orchestrator's are driver, searches, client and run log."""
    names = list(dict.fromkeys(name for result in results for name in result.measured["cpu_s"]))
    table = _table(
        "CPU s by process", "pair", "run", *(name.replace(" ", "\n") for name in names), "all",
        "of the\ncores", "orchestrator's\nms per thought", "aim", "met",
    )  # fmt: skip
    by_name: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for result in results:
        trial = result.trial
        if trial.part in ("walls", "efficiency"):
            name = trial.schedule if trial.what == "search" else f"{trial.what}, no search"
            by_name[trial.pair, name].append(result.measured)
    for (pair, name), members in by_name.items():
        spent = [1e3 * m["cpu_s"]["orchestrator"] / m["nodes"] for m in members if "nodes" in m]
        busy = median(_cpu_s(m) / m["wall_s"] / m["cores"] for m in members)
        table.add_row(
            pair,
            name,
            *(f"{median(m['cpu_s'].get(each, 0.0) for m in members):.2f}" for each in names),
            f"{median(map(_cpu_s, members)):.1f}",
            f"{100 * busy:.0f}%",
            _spread(spent),
            f"< {CPU_AIM_MS}" if spent else "",
            _met(spent, CPU_AIM_MS, lambda each, aim: each < aim),
        )
    return table


def engines(results: Sequence[Result]) -> Table:
    """What was in flight over the last run of each schedule, and when nothing was and why."""
    chosen = [(*each[:2], each[2][-1].measured) for each in _searches(results)]
    reasons = sorted(
        {why for _, _, m in chosen for by_why in m["idle_s"].values() for why in by_why}
    )
    table = _table(
        "in flight over the run (generator: requests, verifier: prompt tokens), and idle times",
        "pair", "schedule", "engine", "mean", "over the run", *(f"idle:\n{why}" for why in reasons),
    )  # fmt: skip
    for pair, schedule, measured in chosen:
        for engine, load in measured["occupancy"].items():
            idle = measured["idle_s"][engine]
            table.add_row(
                pair,
                schedule,
                engine[:3],
                f"{sum(load) / len(load):,.0f}" if load else "-",
                sparkline(load),
                *(f"{100 * idle.get(why, 0.0) / measured['wall_s']:.0f}%" for why in reasons),
            )
    return table


def speculation(results: Sequence[Result]) -> Table:
    """Speculative expansions and waste, over all runs of a kind."""
    table = _table(
        "speculation and waste", "pair", "run", "sent", "used", "hit rate", "cancelled",
        "tokens wasted",
    )  # fmt: skip
    runs: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for result in results:
        trial = result.trial
        if trial.what == "search":
            name = trial.schedule if trial.part == "walls" else f"{trial.in_flight} at a time"
            name += f", {trial.speculation}" if trial.speculation else ""
            runs[trial.pair, name].append(result.measured)
    for (pair, name), members in runs.items():
        sent, used = (sum(m["speculation"][k] for m in members) for k in ("sent", "used"))
        cancelled = sum(sum(m["speculation"]["cancelled"].values()) for m in members)
        shares = [m["waste"]["share"] for m in members if m["waste"]["share"] is not None]
        table.add_row(
            pair, name, f"{sent:,}", f"{used:,}", f"{100 * used / sent:.0f}%" if sent else "-",
            f"{cancelled:,}", f"{100 * median(shares):.1f}%" if shares else "-",
        )  # fmt: skip
    return table


def _cpu_s(measured: Measured) -> float:
    """Processor seconds of all processes."""
    return float(sum(measured["cpu_s"].values()))


def _digests(results: Sequence[Result]) -> str:
    digests: dict[tuple[str, int], set[str]] = defaultdict(set)
    for result in results:
        if result.trial.what == "search":
            digests[result.trial.pair, result.trial.problems].add(result.measured["digest"])
    if not digests:
        return ""
    same = all(len(found) == 1 for found in digests.values())
    return f"trees identical in all runs on the same problems: {'yes' if same else 'NO'}"


def _others(results: Sequence[Result]) -> str:
    shares = [result.measured["others_share"] for result in results]
    return (
        f"other processes took {100 * median(shares):.0f}% of the machine's CPU time "
        f"({100 * max(shares):.0f}% at most in a run)"
        if shares
        else ""
    )


def _pairs(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.trial.pair for result in results))


def _searches(results: Sequence[Result]) -> Iterable[tuple[str, str, list[Result]]]:
    """Pair, schedule and the runs of the part `walls`."""
    for pair in _pairs(results):
        for schedule in SCHEDULES:
            members = [
                result
                for result in results
                if (result.trial.part, result.trial.pair) == ("walls", pair)
                and (result.trial.what, result.trial.schedule) == ("search", schedule)
            ]
            if members:
                yield pair, schedule, members


def _walls(members: Sequence[Result]) -> list[float]:
    return [result.measured["wall_s"] for result in members]


def _over_decoupled(results: Sequence[Result], pair: str, members: list[Result]) -> list[float]:
    yardstick = {
        result.trial.turn: result.measured["wall_s"]
        for name, schedule, runs in _searches(results)
        for result in runs
        if (name, schedule) == (pair, "decoupled")
    }
    return [
        result.measured["wall_s"] / yardstick[result.trial.turn]
        for result in members
        if result.trial.turn in yardstick
    ]


def _off_and_auto(
    results: Sequence[Result], pair: str, part: str
) -> tuple[list[Measured], list[Measured]]:
    """The runs of the rounds that have both."""
    by_turn: dict[int, dict[str | None, Measured]] = defaultdict(dict)
    for result in results:
        if (result.trial.pair, result.trial.part) == (pair, part):
            by_turn[result.trial.turn][result.trial.speculation] = result.measured
    whole = [both for both in by_turn.values() if len(both) == 2]
    return [both["off"] for both in whole], [both["auto"] for both in whole]


def _table(title: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"\n{title}", title_justify="left")
    for heading in headings:
        right = heading not in ("pair", "schedule", "engine", "over the run", "run", "met", "")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    return table


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _met(values: Sequence[float], aim: float | None, holds: Callable[[float, float], bool]) -> str:
    """Whether the median meets the aim, in a word."""
    if aim is None or not values:
        return ""
    return "yes" if holds(median(values), aim) else "no"
