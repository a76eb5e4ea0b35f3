"""What labels say of a verifier's scores: usable, weak, worthless, inverted, constant, saturated.

Every verdict rests on a 95% interval, not on an estimate: a verifier is called worthless where the
labels show that it is hardly better than chance, never since there are too few of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from .clustered import Estimate, Observations, auroc, commonest, ranking
from .events import ProblemSolved
from .statistics import interval


class ScoreCalibration:
    """Collects the scores of completions."""

    def __init__(self) -> None:
        self._scores, self._right = array("d"), bytearray()
        self._sizes = array("l")
        """How many of each problem there are."""
        self.without_score = 0
        """Completions that were never scored."""

    def add(self, event: ProblemSolved) -> None:
        """Take in a problem's completions; those without answer are wrong. One without reference
        says nothing.
        """
        if event.correct is None:
            return
        scored = [each for each in event.completions if each.score is not None]
        self.without_score += len(event.completions) - len(scored)
        self._sizes.append(len(scored))
        for each in scored:
            self._scores.append(each.score or 0.0)
            self._right.append(each.group >= 0 and bool(event.groups[each.group].correct))

    @property
    def observations(self) -> Observations:
        """The scored completions; `add` refuses more of them (BufferError) while this is in use."""
        scores, right = np.frombuffer(self._scores), np.frombuffer(self._right, np.bool_)
        problems = np.repeat(np.arange(len(self._sizes)), self._sizes)
        return Observations(scores, right, problems, len(self._sizes))


@dataclass(frozen=True)
class Verdict:
    """What the 95% interval of an area under the ROC curve says of scores."""

    name: str
    rule: str
    """When it holds, in words."""
    holds: Callable[[float, float], bool]
    """Whether it holds of an interval from low to high."""
    advice: str


@dataclass(frozen=True)
class Finding:
    """A sentence, and the figure that shows what it rests on."""

    name: str
    text: str
    figure: str = ""


VERDICTS: Final = (
    Verdict(
        "inverted",
        "the interval ends below 0.5",
        lambda low, high: high < 0.5,
        "It scores wrong ones higher: whatever follows its scores loses to a majority vote. See "
        "whether the deployment names its labels in the wrong order.",
    ),
    Verdict(
        "usable",
        "the interval begins at 0.7 or above",
        lambda low, high: low >= 0.7,
        "A search may follow it.",
    ),
    Verdict(
        "worthless",
        "the interval holds 0.5 and ends below 0.6",
        lambda low, high: low <= 0.5 and high < 0.6,
        "Do without it: a majority vote is as good as any search that follows it.",
    ),
    Verdict(
        "weak",
        "the interval begins above 0.5 and ends below 0.7",
        lambda low, high: low > 0.5 and high < 0.7,
        "Let it weigh votes over many chains; a deep search would follow its mistakes.",
    ),
    Verdict(
        "unclear",
        "none of the others: the interval is too wide",
        lambda low, high: True,
        "Measure it on more problems.",
    ),
)
"""The first that holds is the verdict. Judged is the area within problems, where enough problems
have right and wrong chains: a search compares chains of one problem. In simulated searches a
verifier of 0.65 lost to a majority vote, and those above 0.8 won: between them lies 0.7."""

COARSE: Final = 10
"""Different scores, at most, that are called coarse."""
ALARMING: Final = frozenset({"inverted", "worthless", "constant", "saturated"})
"""Findings of which a run's report warns."""
FEWEST: Final = 20
"""Scores, at least, of which it warns."""
_UNWEIGHTED: Final = (
    "A completion's score is that of its last step, unless agg_strategy takes others, so votes are "
    "unweighted. Let the verifier tell last steps apart, or take --set agg_strategy=mean."
)


def verdict_of(area: Estimate | None) -> Verdict:
    """What an area under the ROC curve says; `unclear` without one."""
    low, high = area.interval if area else (0.0, 1.0)
    return next(verdict for verdict in VERDICTS if verdict.holds(low, high))


def judge(these: Observations, what: str) -> list[Finding]:
    """The verdict on scores of right and wrong ones, and whether they are saturated."""
    return [*verdict_on(these, what), *scale_of(these, what)] if len(these) else []


def in_percent(estimate: Estimate) -> str:
    """`86.2% [82.9, 89.0]`."""
    low, high = estimate.interval
    return f"{estimate.value:.1%} {interval(100 * low, 100 * high)}"


def alarms(these: Observations, what: str) -> list[str]:
    """What to warn of in a report: scores that are inverted, worthless, constant or saturated."""
    if len(these) < FEWEST:
        return []
    texts = {each.name: each.text for each in judge(these, what) if each.name in ALARMING}
    if "constant" in texts:  # says nothing of the steps before, which a search may follow
        return [texts["constant"]]
    return list(texts.values())


def verdict_on(these: Observations, what: str) -> list[Finding]:
    """The verdict on scores of right and wrong ones, as one finding."""
    right, area = int(these.right.sum()), ranking(these)
    wrong = len(these) - right
    if area is None:
        kind = "right" if right else "wrong"
        text = (
            f"All {len(these):,} labelled {what}s are {kind}: how well scores tell right from "
            "wrong cannot be measured on them."
        )
        return [Finding("no ROC", text)]
    verdict = verdict_of(area)
    whole = auroc(these)
    of_one = " of the same problem" if whole and area.problems < whole.problems else ""
    text = (
        f"{verdict.name.capitalize()}: a right {what} is scored above a wrong one{of_one} in "
        f"{in_percent(area)} of pairs (AUROC; {right:,} right and {wrong:,} wrong {what}s, "
        f"{area.problems:,} problems). {verdict.advice}"
    )
    return [Finding(verdict.name, text, "roc")]


def scale_of(these: Observations, what: str) -> Iterator[Finding]:
    """Whether the scores of steps, chains or completions are constant, saturated or coarse."""
    common = commonest(these)
    if common is None or len(these) < 2:
        return
    score, share, distinct = common
    if distinct == 1:
        text = f"Constant: all {len(these):,} scores of {what}s are {score:g}."
        if what == "completion":
            text += f" {_UNWEIGHTED}"
        yield Finding("constant", text, "scores")
    elif share.interval[0] > 0.5:
        yield Finding(
            "saturated",
            f"Saturated: {in_percent(share)} of all scores of {what}s are {score:g}, of "
            f"{distinct:,} different ones. Nothing tells those apart that share it.",
            "scores",
        )
    elif distinct <= COARSE < len(these) // 10:
        text = f"Coarse: there are {distinct:,} different scores; ties are many."
        yield Finding("coarse", text, "scores")
