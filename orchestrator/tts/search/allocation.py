"""Advice to the searches of a run: its budget among its problems, and how each is searched.

    stage 0: an eighth of the problems ──► 1: an eighth ──► 2: a quarter ──► 3: the others

A budget is the mean of a problem. Easy problems end early; what they leave goes to hard ones. The
problems of earlier stages have shown at how many tokens each could have ended first, and when its
vote was decided; so it is clear what they would have taken with any allowance, and with any number
of votes. A stage is advised the smallest number of votes with which the rest of the budget would be
spent, and the allowance with which it would be spent exactly.

The hash of a problem's name decides its stage, so what it is advised depends on the run's problems,
and neither on their order nor on which of them were faster. A problem by itself has the budget as
its limit. The verifier's calibration decides the method (`method_of`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .calibration import Calibration, Interval

Method = Literal["mcts", "rebase", "vote"]
"""How a problem is searched: by MCTS, in rounds of REBASE, or by independent chains that vote."""
EndedBy = Literal["vote", "allowance", "no votes", "n", "limit"]
"""The end of a search: its vote was decided; it had taken its allowance; many completions had no
vote; n had room for no more; or a limit cut it short."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How a problem is to be searched. The defaults are for one by itself."""

    method: Method = "mcts"
    votes: int = 4
    """Unanimous votes of about this weight decide."""
    width: int = 4
    """Chains of a round."""
    parallel: int = 4
    """Simulations of MCTS at a time."""
    allowance: int | None = None
    """Generated tokens after which the search ends, if it has a completion."""
    cap: int | None = None
    """Generated tokens that the tree may hold at most; not enforced here, see `budget`."""
    auroc: float | None = None
    """How well the scores of inner steps tell right chains from wrong ones, as measured; None where
    the verifier was not measured."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The advice to a problem's search, and what came of it."""

    advice: Advice
    ended_by: EndedBy
    tokens: int
    """Generated tokens in the tree, with those that the verifier wrote about it."""
    first_tokens: int | None
    """The tokens when it could have ended: it had its first completions. None where a limit came
    first."""
    chain_tokens: int | None = None
    """The mean tokens of a completion, with what was written about it; None where there is none."""


MIN_PROBLEMS = 64
"""Fewest problems of a run among which a budget is shared."""
STAGES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""The share of the problems that is solved when each stage ends."""
MAX_ALLOWANCE = 8
"""Most allowance of a problem, in budgets."""
MAX_TREE = 8
"""Most tokens of a problem's tree, in allowances."""
VOTES = (1, 2, 4, 8, 16, 32)
"""Votes that may decide; see `auto.Ending`."""
CUT_SHORT_FACTOR = 2
"""Tokens that a search would have taken that something cut short, by estimate, in its own."""
SETUP_VOTES = 4
"""Cost of the first completions, in votes, by estimate."""
CHANCE_AUROC, GOOD_AUROC = 0.5, 0.7
"""Areas under the ROC curve: of scores that say nothing, and of those that MCTS can follow."""


class Allocation:
    """Advice to the problems of a run."""

    def __init__(
        self,
        budget: int | None = None,
        problems: Sequence[str] = (),
        calibration: Calibration | None = None,
    ) -> None:
        """`budget` is the mean of generated tokens per problem; None: any number.

        `problems` are all that share it; fewer than MIN_PROBLEMS do not.
        """
        self._budget = budget
        inner = inner_auroc(calibration)
        auroc = inner[0] if inner else None
        self._alone = Advice(method_of(inner), allowance=budget, cap=budget, auroc=auroc)
        self._stages: dict[str, int] = {}
        if budget is not None and len(problems) >= MIN_PROBLEMS:
            for rank, problem in enumerate(sorted(problems, key=_hash)):
                share = (rank + 1) / len(problems)
                self._stages[problem] = next(s for s, end in enumerate(STAGES) if share <= end)
        self._decisions: dict[str, Decision] = {}
        self._advice: dict[int, Advice] = {}

    def stage(self, problem: str) -> int:
        """The stage in which a problem is solved."""
        return self._stages.get(problem, 0)

    def observe(self, problem: str, decision: Decision) -> None:
        """Take in the decision that came of a problem."""
        self._decisions[problem] = decision

    def ready(self, problem: str) -> bool:
        """Whether the problems of earlier stages are all solved."""
        stage = self.stage(problem)
        return stage in self._advice or all(each in self._decisions for each in self._before(stage))

    def advice(self, problem: str) -> Advice:
        """The advice to a problem that is ready."""
        if problem not in self._stages:
            return self._alone
        stage = self._stages[problem]
        if stage not in self._advice:
            self._advice[stage] = self._advise(stage)
        return self._advice[stage]

    def _before(self, stage: int) -> list[str]:
        return [problem for problem, own in self._stages.items() if own < stage]

    def _advise(self, stage: int) -> Advice:
        assert self._budget is not None
        budget, earlier = self._budget, [self._decisions[each] for each in self._before(stage)]
        if not earlier:
            most = MAX_ALLOWANCE * budget
            return replace(self._alone, votes=2, parallel=2, allowance=2 * budget, cap=most)
        rest = budget * len(self._stages) - sum(decision.tokens for decision in earlier)
        target = max(budget / 2, rest / (len(self._stages) - len(earlier)))
        return advise(self._alone, earlier, target, MAX_ALLOWANCE * budget)


def _hash(problem: str) -> bytes:
    return hashlib.blake2b(problem.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def inner_auroc(calibration: Calibration | None) -> Interval | None:
    """Area under the ROC curve of inner steps' scores; None: not measured."""
    return (calibration.inner_auroc or calibration.final_auroc) if calibration else None


def method_of(inner: Interval | None) -> Method:
    """How to search where the scores of inner steps have this area under the ROC curve.

    Scores of inner steps that are good are followed by MCTS. Weak ones share out the chains of
    REBASE as far as they say anything. Where nothing shows that they say anything, chains are
    independent, and vote with the probabilities of their ends. MCTS does so by itself as long as
    all scores of a problem are equal.
    """
    if inner is None or inner[1] >= GOOD_AUROC:
        return "mcts"
    return "rebase" if inner[1] > CHANCE_AUROC else "vote"


def advise(alone: Advice, earlier: Sequence[Decision], target: float, most: int) -> Advice:
    """The advice to problems that are to take `target` tokens on average, `most` at the most."""
    chains = target / chain_tokens(earlier)
    # twice as wide as there are rounds: the wider, the more REBASE chooses from; the more rounds,
    # the sooner the vote shows how hard the problem is
    width = max(1, round(min(chains, 2 * math.sqrt(chains))))
    votes, allowance = spend(earlier, target, most)
    return replace(
        alone,
        method="mcts" if alone.method == "rebase" and width < 3 else alone.method,
        votes=votes,
        width=width,
        parallel=min(2, width),
        allowance=allowance,
        cap=max(most, MAX_TREE * allowance),
    )


def chain_tokens(decisions: Sequence[Decision]) -> float:
    """The mean tokens of a chain, in problems that completed one; otherwise of a problem."""
    completed = [each.chain_tokens for each in decisions if each.chain_tokens is not None]
    lengths = completed or [each.tokens for each in decisions]
    return max(1.0, sum(lengths) / len(lengths))


def spend(decisions: Sequence[Decision], target: float, most: int) -> tuple[int, int]:
    """The votes and the allowance with which these problems would have taken `target` on average.

    The allowance is `most` at the most, and of the choices of votes it is the fewest that will do.
    """

    def cost(decision: Decision, votes: int, allowance: float) -> float:
        needed = decision.tokens * (votes + SETUP_VOTES) / (decision.advice.votes + SETUP_VOTES)
        if decision.ended_by not in ("vote", "n"):
            needed *= CUT_SHORT_FACTOR
        return max(decision.first_tokens or decision.tokens, min(needed, allowance))

    def mean(votes: int, allowance: float) -> float:
        return sum(cost(each, votes, allowance) for each in decisions) / len(decisions)

    votes = next((votes for votes in VOTES if mean(votes, most) >= target), VOTES[-1])
    low, high = 0, most
    while low < high:  # the largest allowance that costs no more than the target
        middle = (low + high + 1) // 2
        if mean(votes, middle) <= target:
            low = middle
        else:
            high = middle - 1
    return votes, low
