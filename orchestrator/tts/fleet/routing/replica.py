"""A replica, and work that one has been given."""

from __future__ import annotations

from dataclasses import dataclass, field

from .circuit import Circuit


@dataclass(eq=False, slots=True)
class Replica:
    """One server of a deployment. Its router writes it, everybody may read it."""

    name: str
    group: str = ""
    """Replicas alike in parallelism have the same: `tp8`, `tp1`."""
    outstanding: int = 0
    """Work that it has been given and that has not ended."""
    given: int = 0
    """Work that it has ever been given: of equally busy ones the less used is taken."""
    draining: bool = False
    """Whether it gets nothing new, as before it is upgraded or removed."""
    circuit: Circuit = field(default_factory=Circuit)
    trying: bool = False
    """Whether what its half-open circuit waits for is on the way."""


@dataclass(eq=False, frozen=True, slots=True)
class Lease:
    """Work that a replica has been given, until `Router.end`."""

    replica: Replica
    key: str
    """What the work belongs to: a conversation, a problem; empty: nothing."""
