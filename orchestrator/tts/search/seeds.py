"""Seeds of samples: a function of the run, the problem and the node alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from .thought import NodePath

SeedOf = Callable[[NodePath], int]
"""The seed of the sample that becomes a node."""

SEED_BITS = 63
"""Seeds are below 2**63."""


def node_seed(run_seed: int, problem_id: str, node: NodePath, *, consecutive: bool = False) -> int:
    """A 63-bit seed for the sample that becomes `node` (BLAKE2b of run seed, problem, path).

    `consecutive`: siblings count up from their parent's hash, as a server counts that draws them in
    one request. Paths with a place below 0, which name the numbers of a search, remain hashes.
    """
    if consecutive and node and min(node) >= 0:
        return (node_seed(run_seed, problem_id, node[:-1]) + node[-1]) % (1 << SEED_BITS)
    text = f"{run_seed}\x1f{problem_id}\x1f{'.'.join(map(str, node))}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def unit_interval(seed: int) -> float:
    """A seed as a number in (0, 1], uniform over all seeds."""
    return (seed + 1) / (1 << SEED_BITS)
