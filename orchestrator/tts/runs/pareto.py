"""Which of several runs are worth their cost: the Pareto front of accuracy over a cost."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the (cost, value) pairs that no other pair dominates, by rising cost.

    A pair dominates another if it costs no more and is worth no less, and one of the two is better.
    Of equal pairs the first one is taken, so both costs and values rise along the front.
    """
    front: list[int] = []
    order = sorted(range(len(points)), key=lambda place: (points[place][0], -points[place][1]))
    for place in order:
        if not front or points[place][1] > points[front[-1]][1]:
            front.append(place)
    return front


def best_within(points: Sequence[tuple[float, float]], budget: float) -> int | None:
    """The place of the most valuable pair that costs no more than `budget`; the cheapest of those.

    This is how accuracies are read at an equal cost: the front's step below the budget, never a
    line drawn between two runs. None if every pair costs more.
    """
    affordable = [place for place in pareto_front(points) if points[place][0] <= budget]
    return affordable[-1] if affordable else None
