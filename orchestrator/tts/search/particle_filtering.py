"""Particle filtering: sequential Monte Carlo over steps, weighted by the verifier.

n particles, each one chain. After every iteration a particle's weight grows by the odds of its
path score; when too few particles carry the weight, they are drawn anew by weight.

    root ─┬─ 0 0.9 ──┬─ 0.0        n=4; resampling drew particle 0 twice and 1 never
          ├─ 1 0.2 ✗ └─ 0.1
          ├─ 2 0.7 ─ 2.0
          └─ 3 0.6 ─ 3.0

After Puri et al., "Rollout roulette" (arXiv 2502.01618), with systematic resampling below a
threshold of the effective sample size (Doucet and Johansen 2009, sections 3.4 and 3.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from .protocol import Search, StepConfig
from .seeds import SEED_BITS, SeedOf
from .step_hints import StepHints, best_get
from .step_search import Pool, StepSearch
from .thought import SCORE_UNIT, Fate, NodePath
from .tree import Node
from .votes import AnswerOf


class ParticleConfig(StepConfig):
    """Parameters of particle filtering; `n` is the number of particles."""

    weight_temperature: float = Field(default=1.0, ge=1e-3, le=1e3)
    """Divides the log odds that a score adds to a particle's log weight."""
    ess_threshold: float = Field(default=0.5, ge=0, le=1)
    """Resample when the effective sample size is below this share of n."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return ParticleSearch(self, seed)


class ParticleSearch(StepSearch[ParticleConfig]):
    """Grows a candidate for every active particle of a list of n.

    A completed chain stays a particle and may be drawn several times, so the n completions need
    not be n different chains.
    """

    def __init__(self, config: ParticleConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample, and (-1, iteration) to that of a draw."""
        super().__init__(config, seed)
        self._particles: list[Node | None] = [None] * config.n
        """Last steps in list order; None while its candidate grows."""
        self._log_weights = [0.0] * config.n
        # which particles are drawn anew, and how often, cannot be guessed: one child each
        self.hints = StepHints(self, best_get(1, places=config.n))
        self._open((child,) for child in range(config.n))

    def _decide(self, pool: Pool) -> None:
        ends = iter(pool.ends)
        particles = [particle or next(ends) for particle in self._particles]
        for place, particle in enumerate(particles):
            self._log_weights[place] += (
                log_odds(self._path_score(particle)) / self.config.weight_temperature
            )
        if any(self._is_active(pool, particle) for particle in particles):
            particles = self._resampled(pool, particles)
        if any(self._is_active(pool, particle) for particle in particles):
            self._move_on(pool, particles)
        else:
            self._finish(particles)

    def _resampled(self, pool: Pool, particles: list[Node]) -> list[Node]:
        """The particles drawn anew by weight, or as they are while enough of them carry it."""
        weights = normalised(self._log_weights)
        if effective_sample_size(weights) >= self.config.ess_threshold * self.config.n:
            return particles
        self._log_weights = [0.0] * self.config.n
        for particle in particles:
            particle.fate = Fate.PRUNED
        point = self._seed((-1, pool.iteration)) / 2**SEED_BITS
        draws = systematic(weights, point)
        return [p for p, times in zip(particles, draws, strict=True) for _ in range(times)]

    def _move_on(self, pool: Pool, particles: list[Node]) -> None:
        """Every active particle grows a candidate; copies become children 0, 1, ..."""
        starts: list[NodePath] = []
        copies: dict[NodePath, int] = {}
        self._particles = []
        for particle in particles:
            if self._is_active(pool, particle):
                child = copies.get(particle.path, 0)
                copies[particle.path] = child + 1
                starts.append((*particle.path, child))
                particle.fate = Fate.EXPANDED
                self._particles.append(None)
            else:
                particle.fate = Fate.COMPLETED
                self._particles.append(particle)
        self._open(starts, after=pool)


def log_odds(score: float) -> float:
    """Logit of a score, clipped to one score unit away from 0 and 1."""
    score = min(max(score, SCORE_UNIT), 1 - SCORE_UNIT)
    return math.log(score / (1 - score))


def normalised(log_weights: Sequence[float]) -> list[float]:
    """Weights that add up to 1."""
    largest = max(log_weights)
    weights = [math.exp(weight - largest) for weight in log_weights]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def effective_sample_size(weights: Sequence[float]) -> float:
    """1 / sum of squares of weights that add up to 1 (Kong 1992); between 1 and their number.

    Rounded, so that float noise does not make n equal weights count as fewer than n.
    """
    return round(1 / math.fsum(weight * weight for weight in weights), 9)


def systematic(weights: Sequence[float], point: float) -> list[int]:
    """How often each particle is drawn: n draws at (point + i)/n, `point` in [0, 1)."""
    n = len(weights)
    draws = [0] * n
    particle, reached = 0, weights[0]
    for draw in range(n):
        while (point + draw) / n >= reached and particle < n - 1:
            particle += 1
            reached += weights[particle]
        draws[particle] += 1
    return draws
