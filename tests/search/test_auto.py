"""The search for any budget: as advised, whatever the order of events, until its ending."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import advices, answer, auto_configs, critiques, drive, worlds

from tts.grading.votes import answer_form
from tts.search import (
    Advice,
    AutoConfig,
    AutoSearch,
    BudgetedSearch,
    Completion,
    Expand,
    Fate,
    Generated,
    MctsConfig,
    RebaseConfig,
    SampleSearchConfig,
    Score,
    Scored,
    Stop,
    Thought,
    node_seed,
)
from tts.search.auto import SOFTMAX_TEMPERATURE, UNANSWERED, Ending, agreements, vote_of


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
    if advice.floor == 1:
        assert {done.score for done in found.completions} <= {None, 1.0}
    if advice.method == "mcts":  # the samples are the first chains of the tree
        chains = [(chain,) for chain in range(min(advice.samples, config.n))]
        assert asked[: len(chains)] == [(Expand, chain, True) for chain in chains]
        assert all(chain in found.tree for chain in chains)


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
def test_what_nothing_ends_is_mcts_or_without_rebase_best_of_n(config, world):
    n, how = config.n, config.agg_strategy
    trees = new_search(config, Advice(samples=0, votes=10**6))
    check_same(trees, MctsConfig(n=n, agg_strategy=how), world)
    chains = new_search(config, Advice("chains", votes=10**6, chains=1))
    check_same(chains, SampleSearchConfig(n=n, scored=True, agg_strategy=how), world)


@settings(max_examples=amount(40, 200), deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), worlds)
def test_a_round_is_a_rebase_of_its_own(width, rounds, world):
    config = AutoConfig(n=rounds * width)
    search = new_search(config, Advice("rebase", votes=10**6, width=width, chains=0))
    drive(search, world)
    chosen = {"n": width, "softmax_temperature": SOFTMAX_TEMPERATURE}
    plain = RebaseConfig(**chosen).new_search(seed, answer_form)
    drive(plain, world)
    first_round = [node for node in search.tree if node.path and node.path[0] < width]
    assert [node.path for node in first_round] == [node.path for node in plain.tree if node.path]
    assert {node.path[0] for node in search.tree if node.path} == set(range(rounds * width))
    assert len(search.result().completions) == rounds * width


@settings(max_examples=amount(40, 200), deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), worlds)
def test_independent_chains_and_rebase_take_turns(chains, width, world):
    search = new_search(
        AutoConfig(n=2 * (chains + width)),
        Advice("rebase", votes=10**6, width=width, chains=chains),
    )
    asked = [work for work in drive(search, world) if isinstance(work, Expand)]
    one_turn = chains + width
    for work in asked:
        assert work.whole == (work.node[0] % one_turn < chains)
    found = search.result()
    assert {done.node[0] // one_turn for done in found.completions} == {0, 1}
    answers = [
        (done.node[0] < chains, answer_form(done.text))
        for done in found.completions
        if done.node[0] < one_turn
    ]
    alone, searched = [], []
    for (first, one), (second, other) in combinations(answers, 2):
        if first or second:
            (alone if first and second else searched).append(one is not None and one == other)
    assert found.decision.independent == (sum(alone), len(alone))
    assert found.decision.searched == (sum(searched), len(searched))


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
        needs = search.needs()
        pending = [w for w in pending if isinstance(w, Expand) or needs.get(w.node, True)]
    finished = search.done
    found = search.stop()
    assert found is search.result()
    assert (found.decision.ended_by == "limit") == (not finished)
    assert search.ask() == []
    assert not any(node.fate is Fate.OPEN for node in found.tree)


@pytest.mark.parametrize(
    ("floor", "score", "vote"), [(0.0, 0.3, 0.3), (0.5, 0.0, 0.5), (0.5, 1.0, 1.0), (1.0, 0.2, 1.0)]
)
def test_the_less_scores_tell_the_more_even_the_vote(floor, score, vote):
    assert vote_of(score, Advice("chains", floor=floor)) == vote


def chain(place, answer, score):
    return Completion((place,), rf"\boxed{{{answer}}}", score)


def test_agreement_is_counted_among_equals():
    chains = [chain(0, 1, 0.9), chain(1, 1, 0.5), chain(2, 2, 0.6), chain(3, 2, 0.49)]
    assert agreements(chains, answer_form) == ((1, 3), (0, 0))
    unread = [Completion((0,), "no answer", 0.1), Completion((1,), "no answer", 0.1)]
    assert agreements(unread, answer_form) == ((0, 0), (0, 1))
    assert agreements([chain(0, 1, None), chain(1, 1, None)], answer_form) == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("votes", "first", "ends"),
    [(1, 0.9, True), (1, 0.7, False), (2, 0.9, False), (4, 3.0, False), (4, 4.0, True)],
)
def test_so_many_unanimous_votes_decide(votes, first, ends):
    ending = Ending(Advice(votes=votes))
    assert ending.reached(first, 0.0, 10, 4) is ends
    assert ending.by == ("vote" if ends else "n")
    assert ending.first_tokens == 10


def test_an_allowance_ends_a_search_once_it_is_spent():
    ending = Ending(Advice(allowance=20))
    ends = [ending.reached(0.5, 0.5, tokens, 2) for tokens in (10, 19, 20)]
    assert ends == [False, False, True]
    assert (ending.by, ending.first_tokens) == ("allowance", 10)


def test_one_sure_chain_is_enough_where_one_vote_decides():
    search = new_search(AutoConfig(), Advice(samples=0, votes=1, parallel=1))
    (work,) = search.ask()
    search.tell(Generated(work.node, (Thought((7,), r"\boxed{5}", Stop.END),)))
    search.ask()
    search.tell(Scored(work.node, 1.0))
    assert [done.node for done in search.result().completions] == [(0,)]
    assert search.result().decision.ended_by == "vote"


def of_steps(steps, answer=r"\boxed{5}"):
    """What models say that take so many steps to an answer."""

    def said(work):
        if isinstance(work, Score):
            return Scored(work.node, 0.9)
        depth = len(work.node)
        texts = [f"{place}\n\n" for place in range(depth, steps)] + [answer]
        thoughts = [Thought((1,), text, Stop.STEP) for text in texts]
        thoughts[-1] = Thought((1,), answer, Stop.END)
        return Generated(work.node, tuple(thoughts[: None if work.whole else 1]))

    return said


def solved(config, advice, said):
    search = new_search(config, advice)
    pending = search.ask()
    while not search.done:
        search.tell(said(pending.pop(0)))
        pending += search.ask()
    return search.result()


@pytest.mark.parametrize("method", ["mcts", "rebase", "chains"])
@pytest.mark.parametrize("samples", [0, 4])
def test_a_problem_of_many_steps_is_searched_to_its_answer(method, samples):
    found = solved(AutoConfig(), Advice(method, samples=samples), of_steps(50))
    assert found.decision.ended_by == "vote"
    assert all(answer_form(done.text) for done in found.completions)
    assert max(len(node.path) for node in found.tree) == 50


@pytest.mark.parametrize("method", ["mcts", "rebase", "chains"])
def test_few_chains_are_enough_of_a_question_without_an_answer_and_one_at_temperature_0(method):
    found = solved(AutoConfig(), Advice(method), of_steps(3, "A poem."))
    assert found.decision.ended_by == "no votes"
    assert UNANSWERED <= len(found.completions) <= UNANSWERED + 4
    found = solved(AutoConfig(temperature=0), Advice(method), of_steps(3))
    assert len(found.completions) == 1
    assert found.tree.tokens == 3
