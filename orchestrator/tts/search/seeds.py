"""Seeds that depend only on run, problem and node: the same on any machine and schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from .thought import NodePath

SeedOf = Callable[[NodePath], int]
"""The seed of the sample that becomes a node."""

SEED_BITS = 63
"""Seeds are below 2**63."""


def node_seed(run_seed: int, problem_id: str, node: NodePath) -> int:
    """A 63-bit seed for the sample that becomes `node` (BLAKE2b of run seed, problem, path)."""
    text = f"{run_seed}\x1f{problem_id}\x1f{'.'.join(map(str, node))}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def unit_interval(seed: int) -> float:
    """A seed as a number in (0, 1], uniform over all seeds."""
    return (seed + 1) / (1 << SEED_BITS)
