"""The range of the values in a tree, and how a child's compares with its parent's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .thought import significant


@dataclass(slots=True)
class SeenValues:
    """The values in a tree: their range, and the share of its parent's value that a child has."""

    least: float = math.inf
    most: float = -math.inf
    children: float = 0.0
    """Sum of the children's values, each at most its parent's."""
    parents: float = 0.0
    """Sum of their parents' values, without those of the root, which counts as the most seen."""
    count: int = 0
    """Children that were compared with a parent other than the root."""
    below_root: int = 0
    """Children of the root."""

    @property
    def differ(self) -> bool:
        """Whether any two of them do."""
        return self.least < self.most

    def extend(self, value: float) -> None:
        """Extend the range to a value."""
        self.least, self.most = min(self.least, value), max(self.most, value)

    def compare(self, child: float, parent: float | None) -> None:
        """Compare a child's value with its parent's; None: the root."""
        if parent is None:
            self.below_root += 1
            self.children = significant(self.children + child)
        else:
            self.count += 1
            self.children = significant(self.children + min(child, parent))
            self.parents = significant(self.parents + parent)

    def normalised(self, total: float, visits: int = 1) -> float:
        """The sum of the values of some visits, each from 0 (least seen) to 1 (most seen)."""
        span = self.most - self.least
        return significant((total - visits * self.least) / span) if self.differ else 0.0

    def prospect(self, parent: float | None) -> float:
        """The value that a new child is expected to have; half a point is what is believed before
        any child is seen.
        """
        children = self.normalised(self.children, self.count + self.below_root)
        parents = self.normalised(self.parents, self.count) + self.below_root
        share = (0.5 + children) / (1.0 + parents)
        return significant(share * (1.0 if parent is None else self.normalised(parent)))
