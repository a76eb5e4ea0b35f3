"""What follows from a study, in words: each advice names the figure that it rests on. Pure.

Every advice gives the interval that it rests on, one of the study's joint 95% intervals. Nothing
is advised on a difference whose interval holds "no difference": then what is there stays, and the
advice says so. So at most 5% of studies in which nothing makes a difference advise a change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts.runs.statistics import interval, share_with_interval

from .cells import BASE
from .results import CellResult, Ratio


@dataclass(frozen=True)
class StudyAdvice:
    """One advice."""

    subject: str
    text: str
    figure: str
    """The name of the figure that it rests on."""


def advise(results: Mapping[str, CellResult], load: Mapping[str, Any]) -> list[StudyAdvice]:
    """All advice that the results give, and throughput over load, in the form of tune.json."""
    advices = [
        split_advice(results),
        batch_advice(load),
        schedule_advice(results),
        in_flight_advice(results),
        n_advice(results),
    ]
    return [advice for advice in advices if advice]


def split_advice(results: Mapping[str, CellResult]) -> StudyAdvice | None:
    """How to divide the KV memory; None where it was not measured."""
    others = [each for each in results.values() if each.cell.engines.share is not None]
    if not others:
        return None
    best, slower, equal = told_apart(others)
    if best:
        text = (
            f"Give the generator {_share(best)} of the KV memory: {times(best.speed)} the "
            "throughput of the present division."
        )
    else:
        shares = ", ".join(f"{_share(each)}: {times(each.speed)}" for each in slower or equal)
        finding = (
            "is faster beyond the noise, and some are slower" if slower else "is told apart from it"
        )
        text = (
            f"Leave the division of the KV memory as it is: none that was measured {finding} "
            f"(generator's share {shares})."
        )
    return StudyAdvice("KV memory", text, "throughput-by-split")


def schedule_advice(results: Mapping[str, CellResult]) -> StudyAdvice | None:
    """Which schedule to use, and whether to speculate."""
    others = [
        each
        for each in results.values()
        if each.cell.schedule != "decoupled" or each.cell.speculation != "auto"
    ]
    if not others:
        return None
    best, slower, equal = told_apart(others)
    if best:
        text = f"Use {_way(best)}: {times(best.speed)} the throughput of decoupled, auto."
        return StudyAdvice("Schedule", text, "ablation")
    text = "Stay with schedule decoupled, speculation auto: nothing that was measured is faster"
    text += " beyond the noise."
    if slower:
        text += f" Slower: {_listed(slower)}."
    if equal:
        text += f" Not told apart from it: {_listed(equal)}."
    return StudyAdvice("Schedule", text, "ablation")


def in_flight_advice(results: Mapping[str, CellResult]) -> StudyAdvice | None:
    """Whether to limit the problems in flight, and what limits cost and gain."""
    limited = [each for each in results.values() if each.cell.in_flight is not None]
    if not limited:
        return None
    best, slower, equal = told_apart(limited)
    if best:
        text = f"At most {best.cell.in_flight} (--in-flight): {times(best.speed)} the throughput "
        text += f"of no limit, and {_latencies(best, results[BASE])}."
        return StudyAdvice("Problems in flight", text, "concurrency")
    text = "Set no limit: none that was measured is faster beyond the noise."
    if slower:
        text += f" Slower: {', '.join(f'{e.cell.in_flight}: {times(e.speed)}' for e in slower)}."
    if equal:
        least = min(equal, key=lambda each: each.cell.in_flight or 0)
        text += (
            f" At most {least.cell.in_flight} is not told apart from it ({times(least.speed)}), "
            f"and {_latencies(least, results[BASE])}."
        )
    return StudyAdvice("Problems in flight", text, "concurrency")


def batch_advice(load: Mapping[str, Any]) -> StudyAdvice | None:
    """How much to keep in flight on each engine; None where too little was measured.

    A budget changes only to enter the 95% interval of the engine's saturation point: where the
    loads that were measured show no upper end of it, the budget stays as it is.
    """
    changes = []
    for role in ("generator", "verifier"):
        if policy := load["policy"].get(role):
            engine = load["engines"][role]
            field = f"{role}.in_flight_{'tokens' if engine['unit'] == 'tokens' else 'requests'}"
            low, high = _saturation(engine)
            interval = f"{_loads(engine, low, high)}, 95% interval"
            present, proposed = policy["present"], policy["proposed"]
            if low <= present <= high:
                change, why = f"{present:,}, as it is", "not told apart from its saturation point"
            elif math.isinf(high):
                change, why = f"{present:,}, as it is", "no load that was measured saturates it"
            elif present == proposed:
                change, why = f"{present:,}, as it is", policy["why"]
            else:
                change, why = f"{present:,} -> {proposed:,}", policy["why"]
            changes.append(f"{field}: {change} ({why}; the {role} saturates {interval})")
    if not changes:
        return None
    return StudyAdvice("Batch sizes", "; ".join(changes) + ".", "generator-by-load")


def n_advice(results: Mapping[str, CellResult]) -> StudyAdvice | None:
    """How many completions: as deployed, unless another n is certainly right more often."""
    base, candidates = results[BASE], of_n(results)
    if len(candidates) < 2 or base.accuracy is None:
        return None
    compared = len(results) - 1

    def gains(each: CellResult) -> bool:
        gain = each.more_right_than(base, compared)
        return gain is not None and gain.low > 0

    certain = [each for each in candidates if gains(each)]
    best = certain[0] if certain else base
    right = share_with_interval(best.accuracy or 0.0, len(best.right))
    text = (
        f"n = {best.cell.n}: {right} right, at "
        f"{best.tokens_per_problem:,.0f} generated tokens a problem."
    )
    if certain:
        text += f" Than n = {base.cell.n}, {_than(best, base, compared)}."
    for each in candidates:
        if each is not best and each not in certain:
            text += f" n = {each.cell.n} is right {_than(each, best, compared)}."
    return StudyAdvice("n", text, "accuracy-by-n")


def of_n(results: Mapping[str, CellResult]) -> list[CellResult]:
    """The cells that differ from the base in n at most, by rising n."""
    base = results[BASE]
    same = [
        each for each in results.values() if each.cell.n != base.cell.n or each.cell.name == BASE
    ]
    return sorted(same, key=lambda each: each.cell.n)


def told_apart(
    results: Sequence[CellResult],
) -> tuple[CellResult | None, list[CellResult], list[CellResult]]:
    """The fastest, if it is faster than the base beyond the noise; those slower so; the others."""
    best = max(results, key=lambda each: each.speed.value)
    slower = [each for each in results if each.speed.is_certain and each.speed.value < 1]
    others = [each for each in results if each not in slower]
    return best if best.speed.value > 1 and best.speed.is_certain else None, slower, others


def times(ratio: Ratio) -> str:
    """`1.20x [1.10, 1.31]`; without an interval from a single round."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}x (one round: no interval)"
    return f"{ratio.value:.2f}x {interval(ratio.low, ratio.high, '.2f')}"


def _share(result: CellResult) -> str:
    return f"{100 * (result.cell.engines.share or 0.0):.3g}%"


def _way(result: CellResult) -> str:
    if result.cell.schedule != "decoupled":
        return f"schedule {result.cell.schedule}"
    return f"speculation {result.cell.speculation}"


def _listed(results: Sequence[CellResult]) -> str:
    return ", ".join(f"{_way(each)} {times(each.speed)}" for each in results)


def _saturation(engine: Mapping[str, Any]) -> tuple[float, float]:
    """The 95% interval of an engine's saturation point; what was not seen lies beyond.

    A saturation point is seen only where a load twice as large was measured.
    """
    point, largest = engine["saturation_point"], engine["levels"][-1]["load"]
    low, high = point["low"], point["high"]
    return largest / 2 if low is None else low, math.inf if high is None else high


def _loads(engine: Mapping[str, Any], low: float, high: float) -> str:
    """`at 18 to 26 requests`, `at 256 tokens or fewer`, `beyond 4,096 tokens`."""
    unit = engine["unit"]
    if math.isinf(high):
        return f"beyond {low:,.0f} {unit}"
    if low <= engine["levels"][0]["load"]:
        return f"at {high:,.0f} {unit} or fewer"
    return f"at {low:,.0f} to {high:,.0f} {unit}"


def _latencies(result: CellResult, base: CellResult) -> str:
    mine, others, ratio = result.latency_p50_s, base.latency_p50_s, result.latency
    if mine is None or others is None or ratio is None:
        return "its time per problem is not known"
    seconds = f"{times(ratio)}, {mine:.2g} s instead of {others:.2g} s (median)"
    if ratio.is_certain:
        return f"a problem takes {'less' if ratio.value < 1 else 'more'} time: {seconds}"
    return f"the time per problem is not told apart: {seconds}"


def _than(result: CellResult, other: CellResult, compared: int) -> str:
    """`3.8 points less often [-10.0, 2.3] (not told apart) at 0.25 times the tokens`."""
    difference = result.more_right_than(other, compared)
    ratio = result.tokens_per_problem / other.tokens_per_problem
    tokens = f"at {ratio:.2g} times the tokens"
    if difference is None:
        return tokens
    note = "" if difference.is_certain else " (not told apart)"
    often = "more" if difference.mean >= 0 else "less"
    points = f"{abs(100 * difference.mean):.1f} points {often} often"
    return f"{points} {interval(100 * difference.low, 100 * difference.high)}{note} {tokens}"
