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
    drive,
    may_stop_early,
    most_completions,
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

PLENTY = 10**6
budgets = st.integers(1, 60)


def tokens(search):
    return sum(len(node.thought.token_ids) for node in search.tree if node.thought)


def nodes(search):
    return {node.path: (node.thought, node.fate) for node in search.tree}


@settings(max_examples=amount(50, 500), deadline=None)
@given(configs, worlds, st.integers(0, 10**6), budgets)
def test_the_tree_is_a_function_of_the_seeds_and_the_budget(config, world, shuffle, budget):
    plain, shuffled = (BudgetedSearch(build(config), budget) for _ in range(2))
    drive(plain, world)
    drive(shuffled, world, random.Random(shuffle))
    assert nodes(plain) == nodes(shuffled)
    assert plain.result().completions == shuffled.result().completions
    assert plain.result().limit == shuffled.result().limit


@settings(max_examples=amount(50, 500), deadline=None)
@given(configs, worlds, budgets)
def test_no_tree_holds_more_tokens_than_its_budget(config, world, budget):
    search = BudgetedSearch(build(config), budget)
    drive(search, world)
    assert tokens(search) <= budget


@settings(max_examples=amount(75, 300), deadline=None)
@given(configs, worlds, st.integers(0, 10**6))
def test_a_budget_that_is_not_spent_changes_nothing(config, world, shuffle):
    free, budgeted = build(config), BudgetedSearch(build(config), PLENTY)
    drive(free, world)
    drive(budgeted, world, random.Random(shuffle))
    assert budgeted.result() is not None
    assert nodes(budgeted) == nodes(free)
    assert budgeted.result().completions == free.result().completions
    assert budgeted.result().limit is None


@settings(max_examples=amount(50, 500), deadline=None)
@given(configs, worlds, budgets)
def test_what_a_budget_leaves_is_part_of_the_whole_tree(config, world, budget):
    whole, budgeted = build(config), BudgetedSearch(build(config), budget)
    drive(whole, world)
    drive(budgeted, world)
    result = budgeted.result()
    if not may_stop_early(config):  # beyond whose stop the whole tree holds nothing
        thoughts = {node.path: node.thought for node in whole.tree}
        assert all(thoughts[node.path] == node.thought for node in budgeted.tree)
    check_stopped(budgeted, most_completions(config))
    if result.limit is None:
        assert result.completions == whole.result().completions
    elif (ended := [done for done in result.completions if not goes_on(budgeted, done)]) != []:
        assert ended == list(result.completions)


@settings(max_examples=amount(50, 500), deadline=None)
@given(configs, worlds, st.integers(0, 10**6), st.integers(0, 40))
def test_a_search_may_be_stopped_at_any_time(config, world, shuffle, answers):
    search = build(config)
    drive_for(search, world, random.Random(shuffle), answers)
    result = search.stop()
    assert search.stop() is search.result() is result
    assert search.ask() == []
    check_stopped(search, most_completions(config))


def drive_for(search, world, order, answers):
    pending = search.ask()
    while pending and answers and not search.done:
        search.tell(answer(pending.pop(order.randrange(len(pending))), world))
        pending += search.ask()
        answers -= 1


def goes_on(search, done):
    thought = search.tree[done.node].thought
    return thought.stop is Stop.STEP and not thought.blank


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
    for path, length in (((0,), 3), ((1,), 2), ((2,), 1)):
        search.tell(Generated(path, chain(length)))
    assert not search.done
    scores = [work.node for work in search.ask()]
    assert scores == [(0,), (1,)]
    for node in scores:
        search.tell(Scored(node, 0.5))
    assert search.result().lost_tokens == 1
    assert [(done.node, done.score) for done in search.result().completions] == [
        ((0,), 0.5),
        ((1,), 0.5),
    ]


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


def test_as_many_requests_go_out_as_are_expected_to_fit():
    search = BudgetedSearch(build(SampleSearchConfig(n=16, scored=False)), 60)
    sent = [work.node for work in search.ask()]
    assert sent == [(place,) for place in range(4)]
    search.tell(Generated((0,), chain(10)))
    assert [work.node for work in search.ask()] == [(4,), (5,)], "five of ten tokens fit"
    search.tell(Generated((1,), chain(20)))
    assert search.ask() == [], "two of fifteen fit, and four run"
    for place in (2, 3, 4):
        search.tell(Generated((place,), chain(10)))
    assert [done.node for done in search.result().completions] == [(0,), (1,), (2,), (3,), (4,)]
    assert search.result().limit == "tokens"


def test_a_spent_budget_foresees_nothing():
    search = BudgetedSearch(build(SampleSearchConfig(n=2)), 1)
    search.ask()
    search.tell(Generated((0,), chain(1)))
    assert list(search.foresee({})) == []
    assert (0,) not in search.expandable()
    assert not any(isinstance(work, Expand) for work in search.ask())


@pytest.mark.parametrize("wrong", [float("nan"), 2.0])
def test_a_score_that_is_no_probability_is_refused(wrong):
    search = BudgetedSearch(build(SampleSearchConfig(n=1)), 9)
    search.ask()
    search.tell(Generated((0,), chain(1)))
    search.ask()
    with pytest.raises(ValueError, match="within"):
        search.tell(Scored((0,), wrong))
