"""Seeds that depend only on who asks: the same across processes, machines and schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from .thought import NodePath

SeedOf = Callable[[NodePath], int]
"""The seed of the sample that becomes a node."""


def node_seed(run_seed: int, problem_id: str, node: NodePath) -> int:
    """A 63-bit seed for the sample that becomes `node` (BLAKE2b of run seed, problem, path)."""
    text = f"{run_seed}\x1f{problem_id}\x1f{'.'.join(map(str, node))}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
