"""How much KV cache each engine gets: the pools that make one step of a search fastest.

One step of N beams is N generated steps of S tokens, and N scores. With pools that hold the KV
cache of B sequences at a time they come in waves (after the asymmetric memory allocation of
FastTTS, https://arxiv.org/abs/2509.00195, which has no prefix reuse):

    cost  = waves_ver x T_prefill(batch_ver)
          + waves_gen x ( T_prefill(batch_gen) + S x T_decode(batch_gen) )
    waves = ceil(N / B), batch = N / waves          T: step_time.py

The verifier's B is searched linearly; the generator's B follows from the memory that is left. Ties
go to the larger decode batch. *Prefix reuse*: both engines see the same beams again at every step,
so a pool that holds B of N beams computes but (N - B) / N of their prefixes again; the question's
whole blocks are held once per problem. Memory left when both pools hold all N beams is shared in
proportion to them, as far as more could hold anything (`Side.useful`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..spec import Role
from .step_time import StepLoad, StepTime

BEAMS_PER_PROBLEM = 16

GENERATOR, VERIFIER = 0, 1  # places in pairs


@dataclass(frozen=True)
class PoolLimit:
    """One GPU: bytes that its KV caches may take together."""

    capacity: int
    per_token: tuple[int, int]
    """Bytes that a token of the generator's and of the verifier's pool takes here; 0: none."""


@dataclass(frozen=True)
class Side:
    """One engine's demand for KV cache. Lengths are those of a beam in the middle of a search."""

    steps: StepTime
    beams: int
    """Beams in flight that one replica serves."""
    block: int
    reuse: bool
    shared: int
    """Tokens of the prompt that the beams of one problem have in common."""
    own: int
    """Tokens that a beam does not share with others."""
    new: int
    """Tokens of the prompt that no earlier request of this beam has seen."""
    decoded: int
    """Tokens written per request."""
    max_batch_size: int
    max_num_tokens: int
    minimum: int
    """Tokens of the smallest pool: one sequence of max_seq_len, in whole blocks."""
    useful: int
    """Tokens of the largest pool that sequences in flight could ever fill."""

    def pool(self, sequences: int) -> int:
        """Tokens, in whole blocks, of a pool that holds this many sequences."""
        shared = self.shared // self.block * self.block if self.reuse else 0
        own = self.shared + self.own + self.decoded - shared
        problems = math.ceil(sequences / BEAMS_PER_PROBLEM)
        return problems * shared + sequences * math.ceil(own / self.block) * self.block

    def holds(self, tokens: int) -> int:
        """Sequences that a pool holds: the inverse of `pool`."""
        alone, first = self.pool(2) - self.pool(1), self.pool(1)
        problems, rest = divmod(tokens, self.pool(BEAMS_PER_PROBLEM))
        return problems * BEAMS_PER_PROBLEM + max(0, (rest - first + alone) // alone)

    def step_s(self, tokens: int) -> float:
        """Seconds that one step of all beams takes with a pool of this many tokens."""
        sequences = self.holds(tokens)
        waves = math.ceil(self.beams / max(1, min(sequences, self.max_batch_size, self.beams)))
        batch_size = self.beams / waves
        prompt = self.shared + self.own
        hit_rate = min(1.0, sequences / self.beams) if self.reuse else 0.0
        cached = (prompt - self.new) // self.block * self.block * hit_rate
        new = prompt - cached
        chunks = max(1.0, batch_size * new / self.max_num_tokens)
        prefill = StepLoad(
            prefill_tokens=batch_size * new / chunks,
            prefill_attention=batch_size * new * (cached + new / 2) / chunks,
            cached_tokens=batch_size * cached / chunks,
        )
        seconds = chunks * self.steps.cost(prefill).duration_s
        if self.decoded:
            decode = StepLoad(batch_size, batch_size * (prompt + self.decoded / 2))
            seconds += self.decoded * self.steps.cost(decode).duration_s
        return waves * seconds


@dataclass(frozen=True)
class Pools:
    """A division of the memory: tokens of both pools, and what one search step costs with them."""

    generator: int
    verifier: int
    seconds: float


def share_out(
    sides: Mapping[Role, Side], limits: Sequence[PoolLimit], stated: Mapping[Role, int]
) -> Pools | None:
    """The pools of the roles that there are; None if not even the smallest ones fit.

    Those that are stated (tokens) are as they are, and a role alone has all that is left.
    """
    planned = [role for role in sides if role not in stated]
    if len(planned) == 2:
        return search_split((sides["generator"], sides["verifier"]), limits)
    tokens: dict[Role, int] = {"generator": 0, "verifier": 0, **stated}
    for role in planned:
        place = GENERATOR if role == "generator" else VERIFIER
        other = tokens["verifier" if role == "generator" else "generator"]
        rooms = [
            (limit.capacity - other * limit.per_token[1 - place]) // limit.per_token[place]
            for limit in limits
            if limit.per_token[place]
        ]
        tokens[role] = min(_whole(min(rooms), sides[role]), sides[role].useful)
    pools = tokens["generator"], tokens["verifier"]
    full = any(sum(map(operator.mul, pools, each.per_token)) > each.capacity for each in limits)
    if full or any(tokens[role] < sides[role].minimum for role in planned):
        return None
    return Pools(*pools, sum(side.step_s(tokens[role]) for role, side in sides.items()))


def search_split(sides: tuple[Side, Side], limits: Sequence[PoolLimit]) -> Pools | None:
    """The cheapest pools within all limits; None if the smallest ones do not fit."""
    generator, verifier = sides
    best: tuple[float, int, tuple[int, int]] | None = None
    enough = generator.pool(generator.beams)
    for sequences in _candidates(verifier.beams):
        second = max(verifier.minimum, verifier.pool(sequences))
        room = _room(GENERATOR, second, sides, limits)
        if room < generator.minimum:
            break
        first = max(generator.minimum, min(room, enough))
        # rounded, so that the noise of floating point does not break ties
        cost = round(_seconds(sides, (first, second)), 9)
        if best is None or (cost, -first) < best[:2]:
            best = (cost, -first, (first, second))
    if best is None:
        return None
    pools = _grown(best[2], sides, limits)
    return Pools(*pools, _seconds(sides, pools))


def plain_split(sides: tuple[Side, Side], limits: Sequence[PoolLimit], fraction: float) -> Pools:
    """Fixed shares of the free memory of every GPU that both use: `fraction` for the generator."""
    shares = (fraction, 1 - fraction)
    tokens = []
    for which, side in enumerate(sides):
        rooms = [
            limit.capacity * (shares[which] if all(limit.per_token) else 1) / each
            for limit in limits
            if (each := limit.per_token[which])
        ]
        tokens.append(_whole(min(rooms), side))
    return Pools(tokens[0], tokens[1], _seconds(sides, (tokens[0], tokens[1])))


def _candidates(beams: int) -> list[int]:
    """Verifier batches worth trying: whole problems, and fewer beams than one problem has."""
    few = range(1, min(beams, BEAMS_PER_PROBLEM))
    return [*few, *range(BEAMS_PER_PROBLEM, beams, BEAMS_PER_PROBLEM), beams]


def _grown(
    pools: tuple[int, int], sides: tuple[Side, Side], limits: Sequence[PoolLimit]
) -> tuple[int, int]:
    """Share out the memory that the search left over."""
    factor = min(
        limit.capacity / sum(map(operator.mul, pools, limit.per_token)) for limit in limits
    )
    first, second = (
        max(pool, _whole(min(pool * factor, side.useful), side))
        for pool, side in zip(pools, sides, strict=True)
    )
    # one of the two may stop growing before the other, or have GPUs of its own
    first = max(first, min(_room(GENERATOR, second, sides, limits), sides[GENERATOR].useful))
    second = max(second, min(_room(VERIFIER, first, sides, limits), sides[VERIFIER].useful))
    return first, second


def _room(which: int, others: int, sides: tuple[Side, Side], limits: Sequence[PoolLimit]) -> int:
    """Tokens, in whole blocks, left for one engine beside the other's pool."""
    rests = [(limit.capacity - others * limit.per_token[1 - which], limit) for limit in limits]
    if any(capacity < 0 for capacity, _ in rests):
        return -1
    rooms = [
        capacity // limit.per_token[which] for capacity, limit in rests if limit.per_token[which]
    ]
    return _whole(min(rooms), sides[which])


def _seconds(sides: tuple[Side, Side], pools: tuple[int, int]) -> float:
    return sum(side.step_s(pool) for side, pool in zip(sides, pools, strict=True))


def _whole(tokens: float, side: Side) -> int:
    return int(tokens) // side.block * side.block
