"""The search for any budget: as advised, whatever the order of events, until its ending."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import advices, answer, auto_configs, critiques, drive, grow, worlds

from tts.grading.votes import answer_form
from tts.search import (
    Advice,
    AutoConfig,
    AutoSearch,
    BudgetedSearch,
    Calibration,
    Completion,
    Expand,
    Fate,
    Generated,
    MctsConfig,
    Score,
    Scored,
    Stop,
    Thought,
    node_seed,
)
from tts.search.auto import UNANSWERED, Ending
from tts.search.votes import Votes

METHODS = ["mcts", "rebase", "vote"]
FLAT = Calibration.of([(0.0, 0.5), (1.0, 0.5)])


def rounds_of(width):
    """Advice to search in rounds of REBASE that nothing ends."""
    return Advice("rebase", votes=10**6, width=width)


def seed(node):
    return node_seed(0, "p", node)


def new_search(config, advice):
    return AutoSearch(config, advice, seed, answer_form)


def check_same(search, config, world):
    """The tree and the completions are those of another strategy's search."""
    plain = config.new_search(seed, answer_form)
    drive(search, world)
    drive(plain, world)
    assert search.tree.digest() == plain.tree.digest()
    assert search.result().completions == plain.result().completions


@settings(max_examples=amount(60, 600), deadline=None)
@given(auto_configs, advices, worlds, st.integers(0, 10**6))
def test_what_comes_out_depends_on_no_order_of_events_and_every_token_is_counted(
    config, advice, world, shuffle
):
    in_order, in_disorder = new_search(config, advice), new_search(config, advice)
    asked = [
        (type(work), work.node, getattr(work, "whole", None)) for work in drive(in_order, world)
    ]
    drive(in_disorder, world, random.Random(shuffle))
    found, other = in_order.result(), in_disorder.result()
    decision = found.decision
    assert found.tree.digest() == other.tree.digest()
    assert (found.completions, decision) == (other.completions, other.decision)
    assert len(set(asked)) == len(asked), "nothing is asked for twice"
    assert decision.advice == advice
    assert decision.tokens == found.tree.tokens + critiques(found.tree, world)
    assert decision.first_tokens <= decision.tokens
    assert 0 <= decision.chain_tokens <= decision.tokens
    assert len(found.completions) >= 1
    assert not any(node.fate is Fate.OPEN for node in found.tree)
    if decision.ended_by == "allowance":
        assert decision.tokens >= advice.allowance
    if advice.method == "vote":
        assert all(whole for kind, _, whole in asked if kind is Expand)


@settings(max_examples=amount(30, 300), deadline=None)
@given(auto_configs, advices, worlds, st.integers(0, 10**6))
def test_nor_does_it_within_a_budget(config, advice, world, shuffle):
    results = []
    for order in (None, random.Random(shuffle)):
        search = BudgetedSearch(new_search(config, advice), 40)
        drive(search, world, order)
        found = search.result()
        results.append((found.tree.digest(), found.completions, found.decision))
    assert results[0] == results[1]


@settings(max_examples=amount(40, 200), deadline=None)
@given(auto_configs, worlds)
def test_what_nothing_ends_is_mcts(config, world):
    search = new_search(config, Advice(votes=10**6))
    check_same(search, MctsConfig(n=config.n, agg_strategy=config.agg_strategy), world)


@settings(max_examples=amount(40, 200), deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), worlds)
def test_chains_of_rounds_are_independent_where_all_probabilities_are_equal(width, rounds, world):
    config = AutoConfig(n=rounds * width)
    search = AutoSearch(config, rounds_of(width), seed, answer_form, FLAT)
    drive(search, world)
    assert all(node.path[1:] == (0,) * (len(node.path) - 1) for node in search.tree)
    assert {node.path[0] for node in search.tree} == set(range(rounds * width))
    assert len(search.result().completions) == rounds * width


def test_children_of_a_round_are_shared_out_by_the_scores_of_steps():
    search = new_search(AutoConfig(n=4), rounds_of(4))
    grow(search, scores=(0.9, 0.1, 0.3, 0.85))
    children = Counter(node.path[0] for node in search.tree if len(node.path) == 2)
    assert children == {0: 3, 3: 1}


@settings(max_examples=amount(40, 200), deadline=None)
@given(auto_configs, advices, worlds, st.integers(0, 30))
def test_a_search_that_is_stopped_has_what_it_completed(config, advice, world, steps):
    search = new_search(config, advice)
    rng = random.Random(world)
    pending = search.ask()
    for _ in range(steps):
        if search.done:
            break
        search.tell(answer(pending.pop(rng.randrange(len(pending))), world))
        pending += search.ask()
        needs = search.hints.needs()
        pending = [w for w in pending if isinstance(w, Expand) or needs.get(w.node, True)]
    finished = search.done
    found = search.stop()
    assert found is search.result()
    assert (found.decision.ended_by == "limit") == (not finished)
    assert search.ask() == []
    assert not any(node.fate is Fate.OPEN for node in found.tree)


@pytest.mark.parametrize(
    ("votes", "first", "ends"),
    [(1, 0.9, True), (1, 0.6, False), (2, 0.9, False), (4, 2.6, False), (4, 4.0, True)],
)
def test_so_many_unanimous_votes_decide(votes, first, ends):
    ending = Ending(Advice(votes=votes), Votes(answer_form))
    assert ending.reached([chain(place, 1, first / 4) for place in range(4)], 10) is ends
    assert ending.by == ("vote" if ends else "n")
    assert ending.first_tokens == 10


def test_an_allowance_ends_a_search_once_it_is_spent():
    ending = Ending(Advice(allowance=20), Votes(answer_form))
    two = [chain(0, 1, 0.5), chain(1, 2, 0.5)]
    assert [ending.reached(two, tokens) for tokens in (10, 19, 20)] == [False, False, True]
    assert (ending.by, ending.first_tokens) == ("allowance", 10)


def chain(place, answer, score):
    return Completion((place,), rf"\boxed{{{answer}}}", score)


def test_one_sure_chain_is_enough_where_one_vote_decides():
    search = new_search(AutoConfig(), Advice(votes=1, parallel=1))
    (work,) = search.ask()
    search.tell(Generated(work.node, (Thought((7,), r"\boxed{5}", Stop.END),)))
    search.ask()
    search.tell(Scored(work.node, 1.0))
    assert [done.node for done in search.result().completions] == [(0,)]
    assert search.result().decision.ended_by == "vote"


def of_steps(steps, answer=r"\boxed{5}", score=0.9):
    """What models say that take so many steps to an answer."""

    def said(work):
        if isinstance(work, Score):
            return Scored(work.node, score)
        depth = len(work.node)
        texts = [f"{place}\n\n" for place in range(depth, steps)] + [answer]
        thoughts = [Thought((1,), text, Stop.STEP) for text in texts]
        thoughts[-1] = Thought((1,), answer, Stop.END)
        return Generated(work.node, tuple(thoughts[: None if work.whole else 1]))

    return said


def solved(config, advice, said):
    search = BudgetedSearch(new_search(config, advice), 1000)
    pending = search.ask()
    while not search.done:
        search.tell(said(pending.pop(0)))
        pending += search.ask()
    return search.result()


@pytest.mark.parametrize("method", METHODS)
def test_a_problem_of_many_steps_is_searched_to_its_answer(method):
    found = solved(AutoConfig(), Advice(method), of_steps(50))
    assert found.decision.ended_by == "vote"
    assert all(answer_form(done.text) for done in found.completions)
    assert max(len(node.path) for node in found.tree) == 50


@pytest.mark.parametrize("method", METHODS)
def test_chains_come_to_their_ends_where_all_scores_are_0(method):
    found = solved(AutoConfig(), Advice(method), of_steps(3, score=0.0))
    assert found.decision.ended_by == "no votes"
    assert {answer_form(done.text).form for done in found.completions} == {"5"}


@pytest.mark.parametrize("method", METHODS)
def test_few_chains_are_enough_of_a_question_without_an_answer_and_one_at_temperature_0(method):
    found = solved(AutoConfig(), Advice(method), of_steps(3, "A poem."))
    assert found.decision.ended_by == "no votes"
    assert UNANSWERED <= len(found.completions) <= UNANSWERED + 4
    found = solved(AutoConfig(temperature=0), Advice(method), of_steps(3))
    assert len(found.completions) == 1
    assert found.tree.tokens == 3
