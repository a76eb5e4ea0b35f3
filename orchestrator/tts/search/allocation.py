"""How a run's budget goes to its problems, and what they are advised (`Advice`).

    decisions of problems 0 .. i - LAG  ──►  advice to problem i

A problem's advice depends on what was decided of those at least LAG places before it, never on
which of them were faster: so it is the same under every schedule, and when a run is continued.

**Tokens.** A budget is the mean of a problem. Easy problems end early; what they leave goes to hard
ones. Earlier problems have shown at how many tokens they could have ended first, and when their
vote was decided; so it is known what they would have taken with any allowance, and with any number
of votes. The advice is the smallest number of votes with which the budget would be spent, and the
allowance with which it would be spent exactly: the optimum of allocation by "water filling". Where
the budget has not been spent so far, the rest is given to the next problems.

**Method.** If chains with high scores agree with one another, they are right, since wrong answers
differ (the premise of majority voting; Wang et al. 2022): then MCTS may follow the scores. If they
agree less, but more than chains with low scores do, REBASE follows them half-heartedly. Otherwise
independent chains vote. The vote of a completion with score 0 is then the agreement of low scores
over that of high ones: where they agree as often, scores tell nothing, and all weigh the same.
Agreement is the mean of a beta distribution that pairs of chains update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .advice import SAMPLES, WIDTH, Advice, Agreement, Decision, Method
from .thought import significant

LAG = 32
"""How far a problem is behind those whose decisions it knows; more never run at a time."""
WINDOW = 128
"""How many decisions are looked at: the latest."""
SOME = 8
"""One of so many problems begins with samples, after the first LAG, which all do."""
MANY = 4
"""The same while it is uncertain which method is the right one."""
COMPARABLE = 3
"""The fewest samples: two chains with high scores among them can be compared."""
MOST = 16
"""Most allowance of a problem, as a multiple of the budget."""
CAP = 8
"""Most tokens of a problem's tree, as a multiple of its allowance."""
REPAID = 64
"""Problems among which tokens are shared that have not been spent, or have been overspent."""
VOTES = (1, 2, 4, 8, 16, 32)
"""Votes that may decide; see `auto.Ending`."""
PRIOR_HIGH = (0.9, 6)
"""The agreement of high scores before anything is known, and its weight in pairs of chains."""
PRIOR_LOW = (0.2, 24)
"""The same of low scores: no search is given up for what a few problems have shown."""
CERTAIN = 0.83
"""The least agreement of high scores at which MCTS follows them, and a single one may decide."""
BLIND = 0.7
"""The ratio of the agreement of low scores to that of high ones from which no search follows them.
"""
WIDEST = 16
"""The most chains of a round of REBASE."""
NARROWEST = 3
"""The fewest chains of a round of REBASE; where a problem cannot afford them, MCTS does better."""
UNCERTAIN = 0.05
"""Distance to either within which the method is uncertain."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens and agreements of a run's first problems, added up."""

    problems: int = 0
    tokens: int = 0
    high: Agreement = (0, 0)
    low: Agreement = (0, 0)

    def plus(self, decision: Decision) -> Totals:
        """The totals with one problem more."""
        return Totals(
            self.problems + 1,
            self.tokens + decision.tokens,
            _sum(self.high, decision.high),
            _sum(self.low, decision.low),
        )


class Allocation:
    """Advice to the problems of a run, by their places in it."""

    def __init__(self, budget: int | None) -> None:
        """`budget` is the mean of generated tokens per problem; None: any number."""
        self._budget = budget
        self._places: dict[str, int] = {}
        self._decisions: dict[int, Decision] = {}
        self._totals = [Totals()]
        """Of the first 0, 1, 2, ... problems, as far as all are decided."""

    def place(self, problem: str) -> int:
        """The place of a problem in the run; one that is new gets the next."""
        return self._places.setdefault(problem, len(self._places))

    def observe(self, problem: str, decision: Decision) -> None:
        """Take in what was decided of a problem."""
        self._decisions[self.place(problem)] = decision
        while following := self._decisions.get(self._totals[-1].problems):
            self._totals.append(self._totals[-1].plus(following))

    def ready(self, problem: str) -> bool:
        """Whether all is known that the problem's advice depends on."""
        return self.place(problem) < self._totals[-1].problems + LAG

    def advice(self, problem: str) -> Advice:
        """The advice to a problem that is ready."""
        place = self.place(problem)
        known = max(0, place - LAG + 1)
        recent = [self._decisions[before] for before in range(max(0, known - WINDOW), known)]
        return advise(place, recent, self._totals[known], self._budget)


def advise(place: int, recent: Sequence[Decision], known: Totals, budget: int | None) -> Advice:
    """The advice to the problem at a place of a run.

    `recent` are the latest decisions that are known, and `known` are the totals of all.
    """
    high, low = _mean(known.high, PRIOR_HIGH), _mean(known.low, PRIOR_LOW)
    uncertain = min(abs(high - CERTAIN), abs(low / high - BLIND)) < UNCERTAIN
    explores = place < LAG or not place % (MANY if uncertain else SOME)
    samples = SAMPLES if explores else 0
    if budget is None:
        method, floor = choose_method(high, low, WIDTH)
        return Advice(method, samples, floor=floor, reliability=high if recent else None)
    if not recent:
        return Advice(samples=samples, votes=2, parallel=2, allowance=budget, cap=budget)
    saved = budget * known.problems - known.tokens
    target = max(budget / 2, budget + saved / REPAID)
    width = round_width(target / chain_tokens(recent))
    method, floor = choose_method(high, low, width)
    like = [decision for decision in recent if decision.advice.method == method]
    like = like if len(like) >= LAG else list(recent)
    fewest = 1 if method == "mcts" else 4
    choices = [votes for votes in VOTES if votes >= fewest]
    votes, allowance = spend(like, choices, target, MOST * budget)
    return Advice(
        method,
        samples=min(samples, max(COMPARABLE, width)),
        votes=votes,
        width=width,
        parallel=min(2, width),
        allowance=allowance,
        cap=CAP * max(budget, allowance),
        floor=floor,
        reliability=high,
    )


def choose_method(high: float, low: float, width: int) -> tuple[Method, float]:
    """The method where high scores, and low ones, agree so often, and the floor of the vote.

    `width`: the chains of a round.
    """
    floor = significant(min(1.0, low / high))
    if floor > BLIND:
        return "chains", floor
    if high < CERTAIN and width >= NARROWEST:
        return "rebase", floor
    return "mcts", 0.0


def round_width(chains: float) -> int:
    """How many chains a round has where so many are within the budget: twice the root of that.

    So a round is twice as wide as there are rounds: the wider, the more REBASE chooses from; the
    more rounds, the sooner the vote shows how hard the problem is.
    """
    return max(1, round(min(chains, 2 * math.sqrt(chains), WIDEST)))


def chain_tokens(known: Sequence[Decision]) -> float:
    """The mean tokens of a chain, by what there was when the first ones were complete."""

    def chains(advice: Advice) -> int:
        return max(1, advice.samples, 0 if advice.method == "mcts" else advice.width)

    each = [(done.first_tokens or done.tokens) / chains(done.advice) for done in known]
    return max(1.0, sum(each) / len(each))


def spend(
    known: Sequence[Decision], choices: Sequence[int], target: float, most: int
) -> tuple[int, int]:
    """The votes and the allowance with which these problems would have taken `target` on average.

    The allowance is `most` at the most, and of the choices of votes it is the fewest that will do.
    """

    def cost(decision: Decision, votes: int, allowance: float) -> float:
        needed = decision.tokens * votes / decision.advice.votes
        if decision.ended_by != "vote":  # it might have gone on for ever
            needed = allowance
        return max(decision.first_tokens or decision.tokens, min(needed, allowance))

    def mean(votes: int, allowance: float) -> float:
        return sum(cost(decision, votes, allowance) for decision in known) / len(known)

    votes = next((votes for votes in choices if mean(votes, most) >= target), choices[-1])
    low, high = 0, most
    while low < high:  # the largest allowance that costs no more than the target
        middle = (low + high + 1) // 2
        if mean(votes, middle) <= target:
            low = middle
        else:
            high = middle - 1
    return votes, low


def _mean(agreement: Agreement, prior: tuple[float, int]) -> float:
    (agreeing, pairs), (expected, weight) = agreement, prior
    return significant((weight * expected + agreeing) / (weight + pairs))


def _sum(one: Agreement, other: Agreement) -> Agreement:
    return one[0] + other[0], one[1] + other[1]
