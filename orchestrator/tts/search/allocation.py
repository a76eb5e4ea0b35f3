"""How a run's budget goes to its problems, and what they are advised (`Advice`).

    problems 0 .. i - LAG: decisions and evidence  ──►  advice to problem i, and its calibration

What a problem is advised depends on those at least LAG places before it, never on which of them
were faster: so it is the same under every schedule, and when a run is continued.

**Tokens.** A budget is the mean of a problem. Easy problems end early; what they leave goes to hard
ones. Earlier problems have shown at how many tokens they could have ended first, and when their
vote was decided; so it is known what they would have taken with any allowance, and with any number
of votes. The advice is the smallest number of votes with which the budget would be spent, and the
allowance with which it would be spent exactly. Where the budget has not been spent so far, the rest
is given to the next problems.

**Method.** Where the verifier's best scores are worth much (see `calibration`), MCTS follows them.
Otherwise rounds of REBASE follow them as far as they are worth anything: if all scores are worth
the same, its chains are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .advice import Advice, Decision, Method
from .calibration import WINDOW, Calibration, Evidence, learn

LAG = 32
"""How far a problem is behind those that it knows, at least; more never run at a time."""
RECENT = 128
"""How many decisions are looked at, the latest, and among how many problems tokens are shared that
earlier ones have not spent, or have overspent."""
SOME = 8
"""One of so many problems begins with samples, and each of the first LAG."""
MOST = 8
"""Most allowance of a problem in budgets, and most tokens of its tree in allowances."""
VOTES = (1, 2, 4, 8, 16, 32)
"""Votes that may decide; see `auto.Ending`."""
CERTAIN = 0.5
"""What the best scores are worth, at least, where MCTS follows them."""


class Allocation:
    """Advice to the problems of a run, by their places in it."""

    def __init__(
        self,
        budget: int | None = None,
        *,
        advises: bool = True,
        learns: bool = True,
        given: Calibration | None = None,
    ) -> None:
        """`budget` is the mean of generated tokens per problem; None: any number.

        `advises`: whether problems get advice. `learns`: whether earlier problems show what scores
        are worth; if not, it is as `given`, and None is themselves.
        """
        self._budget = budget
        self._advises, self._learns, self._given = advises, learns, given
        self._places: dict[str, int] = {}
        self._evidence: dict[int, Evidence] = {}
        self._decisions: dict[int, Decision] = {}
        self._known = 0
        """Problems from the first on that are all solved."""
        self._taken = [0]
        """The tokens of so many problems, from the first on."""
        self._learnt: tuple[int, Calibration | None] = 0, None
        """The latest calibration, and the problems that it was learnt from."""

    def place(self, problem: str) -> int:
        """The place of a problem in the run; one that is new gets the next."""
        return self._places.setdefault(problem, len(self._places))

    def observe(
        self, problem: str, evidence: Evidence | None, decision: Decision | None = None
    ) -> None:
        """Take in what came of a problem."""
        place = self.place(problem)
        self._evidence[place] = evidence or Evidence(())
        if decision:
            self._decisions[place] = decision
        while self._known in self._evidence:
            done = self._decisions.get(self._known)
            self._taken.append(self._taken[-1] + (done.tokens if done else 0))
            self._known += 1

    def ready(self, problem: str) -> bool:
        """Whether all is known that the problem's advice depends on."""
        if not (self._advises or self._learns):
            return True
        return _known(self.place(problem)) <= self._known

    def calibration(self, problem: str) -> Calibration | None:
        """What scores are worth to a problem that is ready; None: themselves."""
        if not self._learns:
            return self._given
        known = _known(self.place(problem))
        known -= known % SOME
        if self._learnt[0] != known:
            latest = range(max(0, known - WINDOW), known)
            self._learnt = known, learn([self._evidence[place] for place in latest])
        return self._learnt[1]

    def advice(self, problem: str) -> Advice | None:
        """The advice to a problem that is ready."""
        if not self._advises:
            return None
        place, calibration = self.place(problem), self.calibration(problem)
        known = _known(place)
        recent = [self._decisions[before] for before in range(max(0, known - RECENT), known)]
        saved = (self._budget or 0) * known - self._taken[known]
        trust = calibration.best if calibration else None
        return advise(place, recent, trust, self._budget, saved)


def _known(place: int) -> int:
    """How many problems, from the first on, the one at a place knows."""
    return max(0, place + 1 - max(LAG, place // 4))


def advise(
    place: int, recent: Sequence[Decision], trust: float | None, budget: int | None, saved: int
) -> Advice:
    """The advice to the problem at a place of a run, of which these are the latest decisions known.

    `saved`: tokens that the known problems have left of their budgets, or less than none.
    """
    samples = 4 if place < LAG or not place % SOME else 0
    method: Method = "mcts" if trust is None or trust >= CERTAIN else "rebase"
    if budget is None:
        return Advice(method, samples=samples, trust=trust)
    if not recent:  # the very first may be a problem alone: it has no samples to learn from
        samples = 4 if place else 0
        return Advice(samples=samples, votes=2, parallel=2, allowance=budget, cap=budget)
    target = max(budget / 2, budget + saved / RECENT)
    chains = target / chain_tokens(recent)
    # twice as wide as there are rounds: the wider, the more REBASE chooses from; the more rounds,
    # the sooner the vote shows how hard the problem is
    width = max(1, round(min(chains, 2 * math.sqrt(chains))))
    if width < 3:
        method = "mcts"
    like = [decision for decision in recent if decision.advice.method == method]
    votes, allowance = spend(like if len(like) >= LAG else recent, target, MOST * budget)
    return Advice(
        method,
        samples=min(samples, max(2, width)),
        votes=votes,
        width=width,
        parallel=min(2, width),
        allowance=allowance,
        cap=MOST * max(budget, allowance),
        trust=trust,
    )


def chain_tokens(known: Sequence[Decision]) -> float:
    """The mean tokens of a chain, in problems that completed one; otherwise of a problem."""
    completed = [done.chain_tokens for done in known if done.chain_tokens is not None]
    lengths = completed or [done.tokens for done in known]
    return max(1.0, sum(lengths) / len(lengths))


def spend(known: Sequence[Decision], target: float, most: int) -> tuple[int, int]:
    """The votes and the allowance with which these problems would have taken `target` on average.

    The allowance is `most` at the most, and of the choices of votes it is the fewest that will do.
    """

    def cost(decision: Decision, votes: int, allowance: float) -> float:
        needed = decision.tokens * votes / decision.advice.votes
        if decision.ended_by not in ("vote", "n"):  # it might have gone on for ever
            needed = allowance
        return max(decision.first_tokens or decision.tokens, min(needed, allowance))

    def mean(votes: int, allowance: float) -> float:
        return sum(cost(decision, votes, allowance) for decision in known) / len(known)

    votes = next((votes for votes in VOTES if mean(votes, most) >= target), VOTES[-1])
    low, high = 0, most
    while low < high:  # the largest allowance that costs no more than the target
        middle = (low + high + 1) // 2
        if mean(votes, middle) <= target:
            low = middle
        else:
            high = middle - 1
    return votes, low
