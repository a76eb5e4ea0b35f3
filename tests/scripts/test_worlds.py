"""Simulated pairs: they say the same every time, and tell good searches from bad ones."""

from scripts.bench.worlds import PAIRS, World, measure, solve

from tts.search import MctsConfig, node_seed
from tts.strategies.catalog import STRATEGIES, new_search


def test_a_good_verifier_makes_search_pay_and_a_useless_one_makes_it_harmful():
    def right(pair, name):
        return measure(pair, STRATEGIES[name], 8, 60, None)[0]

    assert right("demo", "majority-vote") + 0.1 < right("demo", "weighted-best-of-n")
    assert right("demo", "weighted-best-of-n") + 0.05 < right("demo", "beam-search")
    assert right("useless", "beam-search") + 0.1 < right("useless", "majority-vote")


def test_a_problem_is_the_same_every_time_and_its_tokens_are_counted():
    trees = set()
    for _ in range(2):
        world = World(PAIRS["worse"], "worse", 3)
        search = new_search(MctsConfig(n=3), lambda node: node_seed(0, "p", node))
        result = solve(world, search)
        trees.add(result.tree.digest())
        assert world.tokens == sum(len(n.thought.token_ids) for n in result.tree if n.thought)
    assert len(trees) == 1


def test_a_budget_bounds_the_tree():
    right, tokens = measure("demo", STRATEGIES["beam-search"], 16, 5, 200)
    assert 0 <= right <= 1
    assert tokens < 1225
