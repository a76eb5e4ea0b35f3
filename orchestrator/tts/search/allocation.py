"""How a run's budget goes to its problems, and what they are advised (`Advice`).

    decisions of problems 0 .. i - LAG  ──►  advice to problem i

A problem's advice depends on what was decided of those at least LAG places before it, never on
which of them were faster: so it is the same under every schedule, and when a run is continued.

**Tokens.** A budget is the mean of a problem. Easy problems end early; what they leave goes to hard
ones. Earlier problems have shown at how many tokens they could have ended first, and when their
vote was decided; so it is known what they would have taken with any allowance, and with any number
of votes. The advice is the smallest number of votes with which the budget would be spent, and the
allowance with which it would be spent exactly. Where the budget has not been spent so far, the rest
is given to the next problems.

**Method.** Right answers agree and wrong ones differ (the premise of majority voting; Wang et al.
2022), so the agreement of answers tells which of them to trust, without knowing any:

- Chains with high scores that agree with one another are right: MCTS may follow the scores. (Where
  no score reaches `auto.HIGH`, nothing is learnt of this, and they are followed.)
- If they agree less, REBASE follows the scores half-heartedly, in rounds. Its *gain* is how often
  its chains agree with independent ones, over how often those agree with one another: about the
  ratio of right chains, p_searched p / p^2, where wrong answers differ. (A verifier that favours
  the commonest mistake raises it, too: that is not found out.) If REBASE gains little, rounds of
  chains take turns with its own, since they vote more independently.
- If it gains nothing, all chains are independent.

The vote of a completion with score 0 is, with the last two, the square of the agreement of low
scores over that of high ones: where they agree as often, scores tell nothing, and all weigh the
same. Agreement is the mean of a beta distribution that pairs of chains update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .advice import SAMPLES, WIDTH, Advice, Agreement, Decision, Method
from .thought import significant

LAG = 32
"""How far a problem is behind those whose decisions it knows; more never run at a time."""
WINDOW = 128
"""How many decisions are looked at: the latest."""
SOME = 8
"""One of so many problems begins with samples or compares methods, after the first LAG, which all
do."""
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
"""The same of low scores: they get no larger vote for what a few problems have shown."""
CERTAIN = 0.83
"""The least agreement of high scores at which MCTS follows them, and a single one may decide."""
PRIOR_GAIN = (1.08, 12)
"""The gain of REBASE before anything is known, and its weight in problems whose chains all agree.
"""
LEAST_GAIN = 1.01
"""The gain from which there are rounds of REBASE."""
CLEAR_GAIN = 1.1
"""The gain from which all rounds are REBASE's."""
MIXED = 6
"""The fewest chains of a round of REBASE at which there are rounds of independent chains as well.
"""
FIRST_CAP = 3
"""Most tokens of the problems that compare methods before any is known, in budgets."""
WIDEST = 16
"""The most chains of a round of REBASE."""
NARROWEST = 3
"""The fewest chains of a round of REBASE; where a problem cannot afford them, MCTS does better."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens and agreements of a run's first problems, added up."""

    problems: int = 0
    tokens: int = 0
    high: Agreement = (0, 0)
    low: Agreement = (0, 0)
    independent: float = 0.0
    """How far independent chains agree with one another, summed over problems that compare."""
    searched: float = 0.0
    """How far they agree with chains of REBASE in the same problems, summed."""

    def plus(self, decision: Decision) -> Totals:
        """The totals with one problem more."""
        independent, searched = decision.independent, decision.searched
        if not searched[1] and decision.ended_by == "vote":
            searched = independent  # they agreed so well that there was no round of REBASE
        compares = independent[1] > 0 and searched[1] > 0
        return Totals(
            self.problems + 1,
            self.tokens + decision.tokens,
            _sum(self.high, decision.high),
            _sum(self.low, decision.low),
            self.independent + (_share(independent) if compares else 0.0),
            self.searched + (_share(searched) if compares else 0.0),
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
    high, low, gain = _mean(known.high, PRIOR_HIGH), _mean(known.low, PRIOR_LOW), _gain(known)
    floor = significant(min(1.0, low / high) ** 2)
    explores = place < LAG or not place % SOME
    if budget is not None and not recent:
        return _first_advice(place, budget, floor)
    width, target = WIDTH, 0.0
    if budget is not None:
        saved = budget * known.problems - known.tokens
        target = max(budget / 2, budget + saved / REPAID)
        width = round_width(target / chain_tokens(recent))
    method = choose_method(high, gain, width)
    if method == "chains" and explores and width >= NARROWEST:  # of fewer none is chosen
        method = "rebase"
    advice = Advice(
        method,
        samples=SAMPLES if explores else 0,
        width=width,
        chains=independent_chains(method, width, explores, gain),
        floor=0.0 if method == "mcts" else floor,
        reliability=high if known.high[1] else None,
        gain=gain if known.independent or known.searched else None,
    )
    if budget is None:
        return advice
    like = [decision for decision in recent if decision.advice.method == method]
    like = like if len(like) >= LAG else list(recent)
    fewest = 1 if method == "mcts" else 4
    choices = [votes for votes in VOTES if votes >= fewest]
    votes, allowance = spend(like, choices, target, MOST * budget)
    return replace(
        advice,
        samples=min(advice.samples, max(COMPARABLE, width)),
        votes=votes,
        parallel=min(2, width),
        allowance=allowance,
        cap=CAP * max(budget, allowance),
    )


def _first_advice(place: int, budget: int, floor: float) -> Advice:
    """The advice as long as nothing is known: one problem for MCTS, one to compare methods.

    The very first may be a problem alone. It has no samples: there is nobody to learn from them.
    """
    if place % 2 == 0:
        samples = SAMPLES if place else 0
        return Advice(samples=samples, votes=2, parallel=2, allowance=budget, cap=budget)
    return Advice("rebase", allowance=budget, cap=FIRST_CAP * budget, floor=floor)


def choose_method(high: float, gain: float, width: int) -> Method:
    """The method where high scores agree so often, and REBASE has that gain.

    `width`: the chains of a round of REBASE.
    """
    if gain < LEAST_GAIN:
        return "chains"
    return "rebase" if high < CERTAIN and width >= NARROWEST else "mcts"


def independent_chains(method: Method, width: int, explores: bool, gain: float) -> int:
    """The chains of an independent round; 0 if all rounds are REBASE's.

    `width`: the chains of a round of REBASE; `explores`: whether its gain is to be learnt.
    """
    if method != "rebase":
        return min(WIDTH, width)
    takes_turns = explores or (gain < CLEAR_GAIN and width >= MIXED)
    return min(WIDTH, max(2, width // 2)) if takes_turns else 0


def round_width(chains: float) -> int:
    """How many chains a round has where so many are within the budget: twice the root of that.

    So a round is twice as wide as there are rounds: the wider, the more REBASE chooses from; the
    more rounds, the sooner the vote shows how hard the problem is.
    """
    return max(1, round(min(chains, 2 * math.sqrt(chains), WIDEST)))


def chain_tokens(known: Sequence[Decision]) -> float:
    """The mean tokens of a chain, in problems that completed one; otherwise of a problem."""
    completed = [done.chain_tokens for done in known if done.chain_tokens is not None]
    lengths = completed or [done.tokens for done in known]
    return max(1.0, sum(lengths) / len(lengths))


def spend(
    known: Sequence[Decision], choices: Sequence[int], target: float, most: int
) -> tuple[int, int]:
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

    votes = next((votes for votes in choices if mean(votes, most) >= target), choices[-1])
    low, high = 0, most
    while low < high:  # the largest allowance that costs no more than the target
        middle = (low + high + 1) // 2
        if mean(votes, middle) <= target:
            low = middle
        else:
            high = middle - 1
    return votes, low


def _gain(known: Totals) -> float:
    """How much more often chains agree with those of REBASE than with one another."""
    expected, weight = PRIOR_GAIN
    return significant((expected * weight + known.searched) / (weight + known.independent))


def _share(agreement: Agreement) -> float:
    agreeing, pairs = agreement
    return agreeing / pairs if pairs else 0.0


def _mean(agreement: Agreement, prior: tuple[float, int]) -> float:
    (agreeing, pairs), (expected, weight) = agreement, prior
    return significant((weight * expected + agreeing) / (weight + pairs))


def _sum(one: Agreement, other: Agreement) -> Agreement:
    return one[0] + other[0], one[1] + other[1]
