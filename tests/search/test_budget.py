"""A search whose tokens are limited: exact under any order of events, never above its budget."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import (
    answer,
    build,
    configs,
    critiques,
    drive,
    may_stop_early,
    worlds,
)

from tts.search import (
    BudgetedSearch,
    Expand,
    Fate,
    Generated,
    SampleSearchConfig,
    Scored,
    Stop,
    Thought,
)
from tts.search.budget import FIRST

budgets = st.integers(1, 60) | st.just(10**6)


def tokens(search):
    return sum(len(node.thought.token_ids) for node in search.tree if node.thought)


def nodes(search):
    return {node.path: (node.thought, node.fate) for node in search.tree}


@settings(max_examples=amount(100, 800), deadline=None)
@given(configs, worlds, st.integers(0, 10**6), budgets)
def test_the_tree_is_a_function_of_the_seeds_and_the_budget(config, world, shuffle, budget):
    """It is a part of the whole tree, and all of it where the budget is not spent."""
    whole = build(config)
    writes = bool(world % 2)
    plain, shuffled = (BudgetedSearch(build(config), budget, writes=writes) for _ in range(2))
    drive(whole, world)
    drive(plain, world)
    drive(shuffled, world, random.Random(shuffle))
    result = shuffled.result()
    assert nodes(plain) == nodes(shuffled)
    assert plain.result().completions == result.completions
    assert plain.result().limit == result.limit
    assert tokens(plain) <= budget
    check_stopped(plain, config.n)
    if result.limit is None:
        assert result.completions == whole.result().completions
        assert nodes(plain) == nodes(whole)
    else:
        assert tokens(whole) + critiques(whole.tree, world) >= budget or may_stop_early(config)
        ended = [not plain.tree[done.node].thought.goes_on for done in result.completions]
        assert all(ended) or not any(ended)
    if not may_stop_early(config):  # beyond whose stop the whole tree holds nothing
        assert all(whole.tree[node.path].thought == node.thought for node in plain.tree)


@settings(max_examples=amount(50, 500), deadline=None)
@given(configs, worlds, st.integers(0, 10**6), st.integers(0, 40))
def test_a_search_may_be_stopped_at_any_time(config, world, shuffle, answers):
    search, order = build(config), random.Random(shuffle)
    pending = search.ask()
    for _ in range(answers):
        if search.done:
            break
        search.tell(answer(pending.pop(order.randrange(len(pending))), world))
        pending += search.ask()
    result = search.stop()
    assert search.stop() is search.result() is result
    assert search.ask() == []
    check_stopped(search, config.n)


def check_stopped(search, n):
    """Every node's fate is settled, and the completions are those of the tree."""
    completions = search.result().completions
    assert len(completions) <= n
    assert not any(node.fate is Fate.OPEN or node.thought is None for node in search.tree)
    completed = {node.path for node in search.tree if node.fate is Fate.COMPLETED}
    assert completed == {done.node for done in completions}
    assert all(done.text == search.tree.text(done.node) for done in completions)


def chain(length, text=r"\boxed{5}"):
    return (Thought(tuple(range(length)), text, Stop.END),)


def test_tokens_are_counted_in_the_order_of_asking():
    search = BudgetedSearch(build(SampleSearchConfig(n=4, scored=False)), 10)
    search.ask()
    search.tell(Generated((3,), chain(1)))
    search.tell(Generated((2,), chain(1)))
    search.tell(Generated((1,), chain(7)))
    assert not search.done, "whether chain 1 fits depends on chain 0, which is missing"
    search.tell(Generated((0,), chain(4)))
    assert [done.node for done in search.result().completions] == [(0,)]
    assert search.result().limit == "tokens"
    assert [node.path for node in search.tree] == [(0,)]


def test_what_was_generated_within_the_budget_is_still_scored():
    search = BudgetedSearch(build(SampleSearchConfig(n=3)), 5)
    search.ask()
    for path, length in (((0,), 3), ((1,), 2), ((2,), 1), ((2,), 1)):  # the last is told twice
        search.tell(Generated(path, chain(length)))
    assert not search.done
    scores = [work.node for work in search.ask()]
    assert scores == [(0,), (1,)]
    for node in scores:
        search.tell(Scored(node, 0.5))
    assert search.result().lost_tokens == 1
    completions = [(done.node, done.score) for done in search.result().completions]
    assert completions == [((0,), 0.5), ((1,), 0.5)]


@settings(max_examples=amount(50, 500), deadline=None)
@given(configs, worlds, st.integers(0, 10**6), budgets)
def test_what_is_generated_is_in_the_tree_or_counted_as_lost(config, world, shuffle, budget):
    search = BudgetedSearch(build(config), budget)
    order, pending, generated = random.Random(shuffle), search.ask(), {}
    while not search.done:
        result = answer(pending.pop(order.randrange(len(pending))), world)
        if isinstance(result, Generated):
            generated[result.node] = sum(len(each.token_ids) for each in result.thoughts)
        search.tell(result)
        pending += search.ask()
    if search.result().limit:
        assert tokens(search) + search.result().lost_tokens == sum(generated.values())


@pytest.mark.parametrize("scored", [False, True])
def test_as_many_requests_go_out_as_are_expected_to_fit(scored):
    search = BudgetedSearch(build(SampleSearchConfig(n=16, scored=scored)), 60)
    sent = [work.node for work in search.ask()]
    assert sent == [(place,) for place in range(4)]
    search.tell(Generated((0,), chain(10)))
    sent = [work.node for work in search.ask() if isinstance(work, Expand)]
    assert sent == [(4,), (5,)], "five of ten tokens fit"
    if scored:  # and none waits for a score that costs nothing
        return
    search.tell(Generated((1,), chain(20)))
    assert search.ask() == [], "two of fifteen fit, and four run"
    for place in (2, 3, 4):
        search.tell(Generated((place,), chain(10)))
    assert [done.node for done in search.result().completions] == [(0,), (1,), (2,), (3,), (4,)]
    assert search.result().limit == "tokens"


@pytest.mark.parametrize("order", [1, -1])
def test_a_request_is_held_to_what_is_left_in_the_order_of_asking(order):
    search = BudgetedSearch(build(SampleSearchConfig(n=9)), 20)
    first = search.ask()
    assert [work.most for work in first] == [20] * FIRST
    for work in first[::order]:
        search.tell(Generated(work.node, (Thought((1,) * 3, "a", Stop.END),)))
    later = [work.most for work in search.ask() if isinstance(work, Expand)]
    assert later == [17, 17]


def test_a_spent_budget_guesses_nothing():
    search = BudgetedSearch(build(SampleSearchConfig(n=2)), 1)
    search.ask()
    search.tell(Generated((0,), chain(1)))
    assert list(search.hints.guess({})) == []
    assert (0,) not in search.hints.expandable()
    assert not any(isinstance(work, Expand) for work in search.ask())


def test_what_the_verifier_writes_is_paid_once_for_each_request():
    search = BudgetedSearch(build(SampleSearchConfig(n=16)), 130, writes=True)
    assert len(search.ask()) == 4
    for place in range(4):
        search.tell(Generated((place,), chain(10)))
    assert [work.node for work in search.ask()] == [(0,), (1,), (2,), (3,)], "scores: 90 are left"
    search.tell(Scored((0,), 0.5, 30, b"0"))
    assert search.ask() == [], "60 are left, and three more scores are due"
    search.tell(Scored((1,), 0.5, 30, b"0"))
    assert [work.node for work in search.ask()] == [(4,)], "that was the first one's critique"
    search.tell(Generated((4,), chain(10)))
    search.tell(Scored((2,), 0.5, 30, b"2"))
    search.tell(Scored((3,), 0.5, 10, b"3"))
    assert [work.node for work in search.ask()] == [(4,)], "20 are left: a score's mean and more"
    search.tell(Scored((4,), 0.5, 30, b"4"))
    assert [done.node for done in search.result().completions] == [(i,) for i in range(5)]
    assert search.result().limit == "tokens"
