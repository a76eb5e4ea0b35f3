"""What a measurement says of its verifier, in sentences. Pure.

Every sentence rests on a 95% interval, not on an estimate. The verdict is that of `runs.verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tts.runs.clustered import ENOUGH_WITHIN, Estimate
from tts.runs.statistics import interval
from tts.runs.verdicts import Finding, in_percent, scale_of, verdict_on
from tts.search.thought import Aggregation

from .measurement import Discrimination, Measurement, compare_aggregations

BIASED: Final = 0.2
"""A score depends on length or depth where the interval of their rank correlation, among equally
labelled ones, lies beyond this: of two of them the longer one scores higher in 56% of pairs."""
UNCALIBRATED: Final = 0.05
"""Expected calibration error that the interval must lie above."""
PARTIAL_TO_PROBLEMS: Final = 0.05
"""How much the area over all pairs must exceed that within problems, by its interval."""
AGGREGATION_NAMES: Final[dict[Aggregation, str]] = {
    "last": "the last score",
    "min": "the lowest score",
    "prod": "the product of scores",
    "mean": "the mean score",
}


def findings_of(measurement: Measurement) -> list[Finding]:
    """Sentences of a measurement, the verdict first."""
    main = measurement.main
    verdict = [Finding("no labels", "Nothing is labelled, so nothing can be said of the scores.")]
    if main is not None:
        verdict = verdict_on(main.these, "answer" if main is measurement.final else "step")
    return [
        *verdict,
        *scale_of(measurement.every, "step"),
        *_aggregation(measurement),
        *_picks(measurement),
        *_problems(measurement),
        *_biases(measurement),
        *_calibration(measurement),
        *_first_error(measurement),
        *_left_out(measurement),
    ]


def _aggregation(measurement: Measurement) -> Iterator[Finding]:
    compared = compare_aggregations(measurement.answers)
    if compared is None:
        return
    best, differences = compared
    kind = measurement.answers[best]
    area, depth = kind.ranking, kind.alone.get("depth")
    if area is None or area.interval[0] <= 0.5:
        return
    beyond = [AGGREGATION_NAMES[how] for how, (low, _) in differences.items() if low > 0]
    alike = [AGGREGATION_NAMES[how] for how, (low, _) in differences.items() if low <= 0]
    comparisons = [f"better than {_list(beyond)} beyond noise"] if beyond else []
    comparisons += [f"not told apart from {_list(alike)}"] if alike else []
    short = ""
    if best == "prod" and depth is not None and not _exceeds(kind, depth):
        short = (
            " It falls with each step, and is no better than the number of steps alone, beyond "
            f"noise ({in_percent(_folded(depth))})."
        )
    yield Finding(
        "best aggregation",
        f"Answers are told apart best by {AGGREGATION_NAMES[best]} of their steps: AUROC "
        f"{in_percent(area)}, {' and '.join(comparisons)}.{short}",
        "discrimination",
    )


def _picks(measurement: Measurement) -> Iterator[Finding]:
    final = measurement.final
    if final is None or final.picks is None:
        return
    picks = final.picks
    low, high = (picks.best - picks.random).interval
    gain = "better" if low > 0 else "worse" if high < 0 else "no better, beyond noise,"
    yield Finding(
        "picks",
        f"Picked by the last step's score, {in_percent(picks.best)} of the answers are right: "
        f"{gain} than {in_percent(picks.random)} of random picks; {in_percent(picks.any)} of the "
        f"problems have a right one.",
        "discrimination",
    )


def _problems(measurement: Measurement) -> Iterator[Finding]:
    final = measurement.final
    if final is None or final.auroc is None or final.within is None:
        return
    if (
        final.within.problems >= ENOUGH_WITHIN
        and (final.auroc - final.within).interval[0] > PARTIAL_TO_PROBLEMS
    ):
        yield Finding(
            "tells problems apart",
            f"Over pairs of different problems, too, AUROC is {in_percent(final.auroc)}, but "
            f"{in_percent(final.within)} within a problem: part of what scores tell is which "
            "problem is easy, which helps no search.",
            "discrimination",
        )


def _biases(measurement: Measurement) -> Iterator[Finding]:
    stepwise = measurement.steps or measurement.inner
    for what, kind in (("step", stepwise), ("answer", measurement.final)):
        for by, correlation in (kind.correlations if kind else {}).items():
            low, high = correlation.interval
            if low <= BIASED and high >= -BIASED:
                continue
            longer = "longer" if by == "length" else "later" if what == "step" else "deeper"
            yield Finding(
                f"depends on {by}",
                f"Depends on {by}: of equally labelled {what}s the {longer} ones score "
                f"{'higher' if low > BIASED else 'lower'} (rank correlation "
                f"{correlation.value:+.2f} {interval(low, high, '+.2f')}).",
                "groups",
            )
        if kind is not None and (text := _no_better_than_length(kind, what)):
            yield Finding("no better than length", text, "groups")


def _no_better_than_length(kind: Discrimination, what: str) -> str:
    """A sentence if the length alone tells as much as the score; else empty."""
    length, area = kind.alone.get("length"), kind.auroc
    if length is None or area is None or area.interval[1] < 0.5 or _exceeds(kind, length):
        return ""
    return (
        f"The length of {what}s alone tells right from wrong in {in_percent(_folded(length))} of "
        f"pairs, the score in {in_percent(area)}: no better, beyond noise."
    )


def _exceeds(kind: Discrimination, alone: Estimate) -> bool:
    """Whether scores tell more than something else alone, or that tells nothing."""
    folded = _folded(alone)
    assert kind.auroc is not None
    return folded.interval[0] <= 0.5 or (kind.auroc - folded).interval[0] > 0


def _folded(area: Estimate) -> Estimate:
    """An area, or that of the opposite order, whichever is above 0.5."""
    if area.value >= 0.5:
        return area
    return replace(area, value=1 - area.value, influences=-area.influences)


def _calibration(measurement: Measurement) -> Iterator[Finding]:
    main = measurement.main
    if main is not None and main.expected_error.interval[0] > UNCALIBRATED:
        yield Finding(
            "uncalibrated",
            "A score is no probability of being right: it is off by "
            f"{in_percent(main.expected_error)} (expected calibration error over 10 bins).",
            "calibration",
        )


def _first_error(measurement: Measurement) -> Iterator[Finding]:
    first = measurement.first_error
    if first is None:
        return
    reference = "GSM8K, as ProcessBench has it" if first.chosen_on == "gsm8k" else first.chosen_on
    yield Finding(
        "first errors",
        f"First errors are found with an F1 of {in_percent(first.f1)} (ProcessBench): the right "
        f"step in {in_percent(first.erroneous)} of chains with one, none in "
        f"{in_percent(first.correct)} of the others. A right step scores above "
        f"{first.threshold:.4g}, the best on {reference}; above 0.5, as label models have it, "
        f"F1 is {in_percent(first.f1_at_half)}.",
        "first-errors",
    )


def _left_out(measurement: Measurement) -> Iterator[Finding]:
    if bad := measurement.not_numbers:
        text = f"{len(bad):,} scores are no numbers and were left out, the first: {bad[0]}."
        yield Finding("no numbers", text)
    if measurement.unscored:
        text = f"{measurement.unscored:,} chains have steps without a score and were left out."
        yield Finding("unscored", text)


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
