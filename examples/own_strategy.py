"""A search strategy of your own: sample chains one at a time until two of them agree.

    pip install '.[cpu]' && tts build-engines demo
    python examples/own_strategy.py

A strategy is a state machine: `ask` says which work it wants, `tell` takes results in, `result`
returns the outcome. It never calls an engine, so the same class runs under every schedule. The
example compares its accuracy and cost with a majority vote of n samples.
"""

from __future__ import annotations

import argparse

from tts import Session
from tts.datasets.load import load_problems
from tts.search import (
    AnswerOf,
    Completion,
    Expand,
    Fate,
    Generated,
    Scored,
    Search,
    SearchConfig,
    SearchResult,
    SeedOf,
    Tree,
    Work,
)
from tts.strategies.strategy import Strategy


class TwoAgree(Search):
    """Asks for chain i once chain i - 1 is known, so its tree does not depend on timing."""

    def __init__(self, config: SearchConfig, seed: SeedOf, answer_of: AnswerOf) -> None:
        self.config, self.seed, self.answer_of = config, seed, answer_of
        self.tree: Tree = Tree()
        self.completions: list[Completion] = []
        self.answers: set[str] = set()
        self.asked, self.finished = 0, False

    def ask(self) -> list[Work]:
        """The next chain, unless one is on its way or the outcome is known."""
        if self.finished or self.asked > len(self.completions):
            return []
        node = (self.asked,)
        self.asked += 1
        return [Expand(node, self.seed(node), self.config.sampling, whole=True)]

    def tell(self, result: Generated | Scored) -> None:
        """Take in a chain; late, unknown and duplicate results change nothing."""
        expected = (self.asked - 1,)
        if not isinstance(result, Generated) or result.node != expected or expected in self.tree:
            return
        for depth, thought in enumerate(result.thoughts):  # nodes (i,), (i, 0), (i, 0, 0), ...
            node = self.tree.add(result.node + (0,) * depth)
            node.thought, node.fate = thought, Fate.EXPANDED
        node.fate = Fate.COMPLETED
        text = self.tree.text(node.path)
        self.completions.append(Completion(node.path, text, None))
        answer = self.answer_of(text)
        agrees = answer is not None and answer.form in self.answers
        self.finished = agrees or len(self.completions) == self.config.n
        self.answers |= {answer.form} if answer else set()

    def result(self) -> SearchResult | None:
        """All chains so far, once two of them agree or n have been sampled."""
        return SearchResult(tuple(self.completions), self.tree) if self.finished else None


class TwoAgreeConfig(SearchConfig):
    """A pydantic model: further parameters would be its fields."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return TwoAgree(self, seed, answer_of)


TWO_AGREE = Strategy("two-agree", "samples until two agree", TwoAgreeConfig, vote="majority")


def main() -> None:
    """Print accuracy and tokens of both strategies on some problems of the demo."""
    parser = argparse.ArgumentParser(description="A strategy of one's own beside a majority vote.")
    parser.add_argument("--problems", type=int, default=40)
    options = parser.parse_args()
    problems = load_problems("demo", limit=options.problems)
    print(f"{len(problems)} problems, n = 8\n\nstrategy       accuracy  tokens per problem")
    with Session.open("demo", server="embedded") as session:
        for name, strategy in (("two-agree", TWO_AGREE), ("majority vote", "majority-vote")):
            results = list(session.solve_many(problems, strategy=strategy, n=8))
            right = sum(result.correct is True for result in results) / len(results)
            tokens = sum(result.usage.generated_tokens for result in results) / len(results)
            print(f"{name:13}  {right:8.1%}  {tokens:18.0f}")


if __name__ == "__main__":
    main()
