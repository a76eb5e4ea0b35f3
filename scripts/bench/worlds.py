"""Accuracy of strategies on simulated pairs, in seconds: scripts/run bench.worlds [PAIR...]

A problem is a chain of operations. The simulated generator does each one right with a probability
of its own, or makes one of a few mistakes; the simulated verifier takes some wrong steps for right
and some right ones for wrong, always the same ones. The searches are the real ones, without engines
or clock: for trying out a change to a strategy on pairs of very different quality before it is
measured on real models. Tokens and accuracies are simulated.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial

from tts.grading import extract_answer
from tts.grading.votes import answer_form, vote
from tts.search import (
    Allocation,
    AutoConfig,
    AutoSearch,
    Expand,
    Generated,
    Score,
    Scored,
    Search,
    SearchResult,
    Stop,
    Thought,
    Work,
    allocation,
    node_seed,
)
from tts.search.budget import BudgetedSearch
from tts.strategies.catalog import STRATEGIES, find_strategy, new_search
from tts.strategies.strategy import Strategy

STEP_TOKENS = 11
CONTEXT = 100_000


@dataclass(frozen=True)
class Pair:
    """How good a generator and a verifier are."""

    right: float
    """Probability that the generator does a step right, at the median."""
    spread: float
    """Standard deviation of its log-odds over the steps of all problems."""
    popular: float
    """Share of the wrong steps that make the commonest mistake, of the others the next one, ..."""
    accepted: float
    """Share of the right steps that the verifier takes for right."""
    detected: float
    """Share of the wrong steps that it takes for wrong."""
    blur: float
    """Mean distance of its scores from 0 or 1."""
    operations: tuple[int, int] = (2, 10)
    anew: bool = False
    """Whether it judges each chain anew, with no memory of the mistakes that it has overlooked."""


PAIRS = {
    "demo": Pair(0.93, 2.4, 0.7, accepted=0.996, detected=0.92, blur=0.03),
    "worse": Pair(0.94, 2.2, 0.7, accepted=0.95, detected=0.8, blur=0.15),
    "weak": Pair(0.94, 2.2, 0.6, accepted=0.85, detected=0.65, blur=0.3),
    "noisy": Pair(0.93, 2.4, 0.7, accepted=0.85, detected=0.55, blur=0.13, anew=True),
    "useless": Pair(0.95, 2.0, 0.6, accepted=0.5, detected=0.5, blur=0.3),
    "long": Pair(0.965, 1.8, 0.7, accepted=0.99, detected=0.92, blur=0.1, operations=(12, 24)),
}
"""`demo` orders the strategies as the demo pair does."""

Mistakes = tuple[int, ...]
"""A chain so far: 0 for each right step, otherwise the number of the mistake."""


def uniform(*names: object) -> float:
    """A number in (0, 1] that depends on the names alone."""
    digest = hashlib.blake2b("\x1f".join(map(str, names)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 1) / 2**64


class World:
    """One problem and what the two models say about it."""

    def __init__(self, pair: Pair, name: str, index: int) -> None:
        self.id = f"{name}/{index}"
        self._pair = pair
        rng = random.Random(self.id)
        fewest, most = pair.operations
        odds = math.log(pair.right / (1 - pair.right))
        steps = fewest + index % (most - fewest + 1)
        logits = (odds + pair.spread * rng.gauss(0, 1) for _ in range(steps))
        self._right = [*(1 / (1 + math.exp(-logit)) for logit in logits), 0.999]
        self._chains: dict[tuple[int, ...], Mistakes] = {(): ()}
        self.tokens = 0

    def answer(self, work: Work) -> Generated | Scored:
        """What the models say."""
        if isinstance(work, Score):
            return Scored(work.node, self._score(self._chains[work.node]))
        thoughts, path = [self._step(work, work.node, 0)], work.node
        while work.whole and thoughts[-1].stop is Stop.STEP:
            path = (*path, 0)
            thoughts.append(self._step(work, path, len(thoughts)))
        self.tokens += STEP_TOKENS * len(thoughts)
        return Generated(work.node, tuple(thoughts))

    def _step(self, work: Expand, path: tuple[int, ...], place: int) -> Thought:
        so_far = self._chains[path[:-1]]
        right = self._right[len(so_far)]
        if work.sampling.temperature:
            mistake, draw = 0, uniform(work.seed, place)
            if draw > right:
                rest = uniform(work.seed, place, "which")
                mistake = 1 + min(8, int(math.log(rest) / math.log(1 - self._pair.popular)))
        else:
            mistake = int(right < 0.5)
        chain = self._chains[path] = (*so_far, mistake)
        ends = len(chain) == len(self._right)
        form = int(3 * uniform(work.seed, place, "form"))  # one step has several wordings
        text = f"\\boxed{{{self._result(chain)}}}" if ends else f"{len(chain)}: {mistake}, {form}"
        return Thought(
            (int(1000 * uniform(text)),) * STEP_TOKENS, text, Stop.END if ends else Stop.STEP
        )

    def _result(self, chain: Mistakes) -> int:
        """0 is right."""
        return 1 + int(97 * uniform(self.id, chain)) if any(chain) else 0

    def _score(self, chain: Mistakes) -> float:
        """High for what the verifier takes for right; half of its oversights it never notices."""
        high = uniform(self.id, "right", chain) <= self._pair.accepted
        wrong = next((place for place, mistake in enumerate(chain, 1) if mistake), None)
        if wrong is not None and self._pair.anew:
            high = uniform(self.id, "wrong", chain) > self._pair.detected
        elif wrong is not None:
            overlooked = uniform(self.id, "wrong", chain[:wrong]) > self._pair.detected
            seen_later = (uniform(self.id, "later", chain[:i]) for i in range(wrong, len(chain)))
            high = overlooked and all(draw > 0.25 for draw in seen_later)
        distance = min(1.0, -math.log(uniform(self.id, "blur", chain)) * self._pair.blur)
        return 1 - distance if high else distance


def solve(world: World, search: Search) -> SearchResult:
    """Answer a search until it is done."""
    pending: deque[Work] = deque()
    while (result := search.result()) is None:
        pending.extend(search.ask())
        search.tell(world.answer(pending.popleft()))
    return result


def is_right(result: SearchResult, strategy: Strategy) -> bool:
    """Whether the answer that the strategy's vote chooses is the right one."""
    completions = sorted(result.completions, key=lambda done: done.node)
    answers = [extract_answer(done.text) for done in completions]
    known = [answer for answer in dict.fromkeys(answers) if answer is not None]
    groups = [known.index(answer) if answer is not None else -1 for answer in answers]
    chosen: str | None = asdict(vote(completions, answers, groups))[strategy.vote]
    return chosen == "0"


def measure(
    pair: str, strategy: Strategy, n: int, problems: range, budget: int | None
) -> tuple[float, float]:
    """The share of the problems that are solved, and the mean tokens."""
    given = {} if "n" in strategy.fixed else {"n": n}
    config = strategy.configure(given, context=CONTEXT)
    advisor = Allocation(budget)
    right = tokens = 0
    for index in problems:
        world = World(PAIRS[pair], pair, index)
        seed = partial(node_seed, 0, world.id)
        search, most = new_search(config, seed), budget
        if isinstance(config, AutoConfig):
            advice = advisor.advice(world.id)
            search, most = AutoSearch(config, advice, seed, answer_form), advice.cap
        result = solve(world, BudgetedSearch(search, most) if most else search)
        if result.decision:
            advisor.observe(world.id, result.decision)
        right += is_right(result, strategy)
        tokens += world.tokens
    return right / len(problems), tokens / len(problems)


def main() -> None:
    """Print a table for each pair."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="*", choices=[*PAIRS, []], metavar="PAIR")
    parser.add_argument("--strategy", nargs="*", default=[*STRATEGIES], metavar="NAME")
    parser.add_argument("--n", nargs="*", type=int, default=[4, 16, 64])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument(
        "--constant",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="another value for a constant of tts.search.allocation: what is it worth to auto?",
    )
    parser.add_argument(
        "--budget-tokens", type=int, help="of a problem at most; for auto, on average"
    )
    args = parser.parse_args()
    for name, _, value in (given.partition("=") for given in args.constant):
        getattr(allocation, name)  # a name that is not there is refused
        setattr(allocation, name, float(value))
    problems = range(args.first, args.first + args.problems)
    for pair in args.pairs or PAIRS:
        print(f"{pair}: share of right answers and simulated tokens of a problem, by n")
        for name in args.strategy:
            strategy, cells = find_strategy(name), []
            for n in args.n:
                right, tokens = measure(pair, strategy, n, problems, args.budget_tokens)
                cells.append(f"{n:4}: {right:6.1%} {tokens:7,.0f}")
            print(f"  {name:22} {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
