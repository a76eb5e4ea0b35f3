"""pass@k: how likely one of k completions is right, estimated from n of them.

The estimator is that of Chen et al., Evaluating Large Language Models Trained on Code (2021),
section 2.1: over all ways to draw k of the n without putting any back. It is unbiased where the n
are independent and alike: chains of self-consistency and best-of-n, or subtrees of DVTS.
"""

from __future__ import annotations

from collections.abc import Mapping


def pass_at_k(n: int, right: int, k: int) -> float:
    """1 - C(n - right, k) / C(n, k): the share of the draws of k that hold a right one.

    Raises ValueError unless 0 <= right <= n and 1 <= k <= n.
    """
    if not (0 <= right <= n and 1 <= k <= n):
        raise ValueError(f"no {k} of {n} can be drawn with {right} right ones")
    missed = 1.0
    for drawn in range(k):  # one after the other: no huge binomials
        missed *= max(0, n - right - drawn) / (n - drawn)
    return 1.0 - missed


def mean_pass_at_k(counts: Mapping[tuple[int, int], int], k: int) -> float | None:
    """The mean over problems that have k units; `counts`: problems by (units, right units).

    None if no problem has that many.
    """
    enough = {pair: problems for pair, problems in counts.items() if pair[0] >= k}
    total = sum(enough.values())
    if not total:
        return None
    return sum(pass_at_k(n, c, k) * problems for (n, c), problems in enough.items()) / total
