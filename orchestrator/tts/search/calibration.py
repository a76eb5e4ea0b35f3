"""What a verifier's scores are worth: learnt from the answers of earlier problems of a run.

    score   0.80   0.81   0.93   0.985   0.99        five of eight knots: only the order of scores
    worth   0.00   0.07   0.63   0.84    0.85        counts, so any scale of a verifier will do

Right answers agree and wrong ones differ (the premise of majority voting; Wang et al. 2022). So the
worth of a score follows from how often chains that end with such a score agree with other chains of
the same problem, each of which counts as much as its own score promises. Chains that share a first
step are not compared: they agree because of it. Agreement is fitted so that it never falls with the
score (isotonic regression by pooling adjacent violators; Ayer et al. 1955), as one calibrates a
classifier (Zadrozny and Elkan 2002), with agreement in place of labels. A verifier that prefers a
common mistake is not found out: its chains agree, too.

Before enough is known, and with `scores: raw`, a score is worth itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .thought import Fate, significant
from .tree import Node, Tree
from .votes import AnswerOf

KNOTS = 8
"""Groups of equal size, by score, whose worth is estimated."""
WINDOW = 256
"""Problems that a run learns from: the latest."""
COMPARED = 16
"""Chains of a problem that are compared with one another, at most: the first ones."""
PRIOR = 8.0
"""Chains that the position of a score in the range of all counts for, beside those compared."""
SHARPNESS = 1.5
"""A worth is the agreement to this power: wrong chains agree by chance, too, and votes add up."""
SLOPE = 0.01
"""Share of that position in an agreement: a better score is always worth a little more."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one problem tells of the verifier's scale."""

    chains: tuple[tuple[float, int, int], ...]
    """Of each complete chain: its last score, its first step's number, and its answer's, -1 for
    none; equal answers have equal numbers."""
    lowest: float = 1.0
    highest: float = 0.0
    """Of all its scores."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A rising function from scores to worths in [0, 1], by straight lines between its points."""

    points: tuple[tuple[float, float], ...]

    def __call__(self, score: float) -> float:
        """What a score is worth."""
        points = self.points
        place = min(max(1, bisect_right(points, (score, 2.0))), len(points) - 1)
        (low, worth), (high, more) = points[place - 1], points[place]
        share = min(max((score - low) / (high - low), 0.0), 1.0)
        return significant(worth + (more - worth) * share)

    @property
    def best(self) -> float:
        """What the best score is worth."""
        return self.points[-1][1]


def evidence_of(tree: Tree, answer_of: AnswerOf) -> Evidence:
    """What a problem's tree tells of the verifier's scale, whatever the order of events."""
    ended = [n for n in tree if n.score is not None and n.thought and not n.thought.goes_on]
    ended.sort(key=lambda node: node.path)
    judged: Iterable[Node] = tree
    if tree.spares_scores:
        ended = [node for node in ended if node.fate is not Fate.PRUNED]
        judged = (step for node in ended for step in tree.chain(node.path))
    scores = [node.score for node in judged if node.score is not None]
    if not scores:
        return Evidence(())
    numbers: dict[object, int] = {None: -1}
    chains = []
    for node in ended[:COMPARED]:
        answer = answer_of(tree.text(node.path))
        number = numbers.setdefault(answer, len(numbers) - 1)
        chains.append((round(node.score or 0.0, 4), node.path[0], number))
    return Evidence(tuple(chains), round(min(scores), 4), round(max(scores), 4))


def learn(known: Sequence[Evidence]) -> Calibration | None:
    """The worths that the latest of these problems show; None where they show nothing."""
    known = known[-WINDOW:]
    finals = sorted(score for each in known for score, _, _ in each.chains)
    low = min((each.lowest for each in known), default=1.0)
    high = max((each.highest for each in known), default=0.0)
    if not finals or high - low < 0.001:
        return None

    def position(score: float) -> float:
        return min(max((score - low) / (high - low), 0.0), 1.0)

    edges = [finals[len(finals) * knot // KNOTS] for knot in range(1, KNOTS)]
    agreement: Calibration | None = None
    for _ in range(2):  # first as if chains agreed as often as their scores are high
        alike, count, total = [0.0] * KNOTS, [0] * KNOTS, [0.0] * KNOTS
        for each in known:
            weights = [(agreement or position)(score) for score, _, _ in each.chains]
            for score, first, answer in each.chains:
                agree = everyone = 0.0
                for weight, (_, root, other) in zip(weights, each.chains, strict=True):
                    if root != first:
                        everyone += weight
                        agree += weight if other == answer >= 0 else 0.0
                if everyone:
                    knot = bisect_right(edges, score)
                    alike[knot] += agree / everyone
                    count[knot] += 1
                    total[knot] += score
        filled = [knot for knot in range(KNOTS) if count[knot]]
        if not filled:
            return None
        means = [total[knot] / count[knot] for knot in filled]
        rising = isotonic(
            [
                (alike[knot] + PRIOR * position(mean)) / (count[knot] + PRIOR)
                for knot, mean in zip(filled, means, strict=True)
            ],
            [count[knot] + PRIOR for knot in filled],
        )
        inner = [
            (mean, (1 - SLOPE) * worth + SLOPE * position(mean))
            for mean, worth in zip(means, rising, strict=True)
        ]
        least = rising[0] * (1 - position(means[0]))
        agreement = Calibration(_ends([(low, least), *inner], high))
    assert agreement is not None
    return Calibration(tuple((score, significant(p**SHARPNESS)) for score, p in agreement.points))


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The rising values nearest to these in weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = value, weight, 1
        while pools and pools[-1][0] > pool[0]:
            before, heavy, size = pools.pop()
            both = heavy + pool[1]
            pool = (before * heavy + pool[0] * pool[1]) / both, both, size + pool[2]
        pools.append(pool)
    return [value for value, _, size in pools for _ in range(size)]


def _ends(inner: Sequence[tuple[float, float]], high: float) -> tuple[tuple[float, float], ...]:
    """The points with one at the highest score, and at 0 and 1."""
    best = min(1.0, inner[-1][1] + SLOPE)
    points = [(0.0, 0.0), *inner, (high, best), (1.0, min(1.0, best + SLOPE))]
    kept = [points[0]]
    for score, worth in points[1:]:
        score, worth = round(score, 6), significant(worth)
        if score > kept[-1][0]:
            kept.append((score, max(worth, kept[-1][1])))
        else:
            kept[-1] = score, max(worth, kept[-1][1])
    return tuple(kept)
