"""A replica, as routing sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import KW_ONLY, dataclass, field

from .circuit import Circuit


@dataclass(eq=False)
class Replica:
    """One server of a deployment. Its router writes these fields, everybody may read them."""

    name: str
    _: KW_ONLY
    group: str = ""
    """Replicas alike in parallelism have the same: `tp8`, `tp1`."""
    leases: Counter[str] = field(default_factory=Counter)
    """Work in progress by what it belongs to: a conversation, a problem; empty: nothing."""
    total: int = 0
    """All work so far: of equally busy replicas the less used is taken."""
    draining: bool = False
    """Whether it gets nothing new, as before it is upgraded or removed."""
    circuit: Circuit = field(default_factory=Circuit)
    trying: bool = False
    """Whether what its half-open circuit waits for is on the way."""

    @property
    def outstanding(self) -> int:
        """Number of pieces of work in progress."""
        return self.leases.total()
