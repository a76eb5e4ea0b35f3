"""The search for any budget: advice to the problems of a run, and endings."""

import random
from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import advices, answer, auto_configs, critiques, drive, grow, worlds

from tts.grading.votes import answer_form
from tts.search import (
    Advice,
    Allocation,
    AutoConfig,
    AutoSearch,
    BudgetedSearch,
    Calibration,
    Completion,
    Decision,
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
from tts.search.allocation import (
    CUT_SHORT_FACTOR,
    MAX_ALLOWANCE,
    MIN_PROBLEMS,
    SETUP_VOTES,
    advise,
    method_of,
    spend,
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


EASY = Decision(Advice(votes=1), "vote", 100, 80, chain_tokens=80)
HARD = replace(EASY, ended_by="allowance", tokens=200)
NAMES = [f"problem-{place}" for place in range(2 * MIN_PROBLEMS)]


@st.composite
def decisions(draw):
    first = draw(st.integers(1, 500))
    tokens = first + draw(st.integers(0, 2000))
    advice = Advice(votes=draw(st.sampled_from([1, 2, 4])))
    return Decision(advice, draw(st.sampled_from(["vote", "allowance", "n"])), tokens, first)


def decision_on(name):
    """What came of a problem, whatever the order."""
    return replace(EASY, tokens=80 + 7 * NAMES.index(name))


@given(st.permutations(NAMES), st.randoms(use_true_random=False))
def test_advice_depends_on_the_problems_and_not_on_their_order(order, rng):
    one, other = Allocation(200, NAMES), Allocation(200, order)
    for allocation in (one, other):
        by_stage = sorted(NAMES, key=lambda name: (allocation.stage(name), rng.random()))
        for name in by_stage:
            assert allocation.ready(name), "its stage comes after those that are solved"
            allocation.advice(name)
            allocation.observe(name, decision_on(name))
    assert [one.advice(name) for name in NAMES] == [other.advice(name) for name in NAMES]


def test_a_problem_waits_for_all_problems_of_earlier_stages():
    allocation = Allocation(200, NAMES)
    stages = [allocation.stage(name) for name in NAMES]
    assert [stages.count(stage) for stage in range(4)] == [16, 16, 32, 64]
    last = NAMES[stages.index(3)]
    first = [name for name in NAMES if allocation.stage(name) < 3]
    for name in first:
        assert not allocation.ready(last)
        allocation.observe(name, EASY)
    assert allocation.ready(last)


def test_a_problem_by_itself_may_take_the_budget_and_no_more():
    alone = Allocation(300, ["a"]).advice("a")
    assert (alone.allowance, alone.cap) == (300, 300)
    assert Allocation(None, NAMES).advice(NAMES[0]) == Advice()
    assert Allocation(300, NAMES[: MIN_PROBLEMS - 1]).advice(NAMES[0]) == alone


def test_what_the_first_stages_have_overspent_the_last_one_saves():
    lean, lavish = Allocation(200, NAMES), Allocation(200, NAMES)
    for name in NAMES:
        if lean.stage(name) < 3:
            lean.observe(name, HARD)
            lavish.observe(name, replace(HARD, tokens=300))
    last = next(name for name in NAMES if lean.stage(name) == 3)
    assert lavish.advice(last).allowance < lean.advice(last).allowance


@given(st.lists(decisions(), min_size=1, max_size=40), st.integers(50, 3000))
def test_what_earlier_problems_would_have_taken_is_the_target_at_most(earlier, target):
    votes, allowance = spend(earlier, target, MAX_ALLOWANCE * target)
    assert 0 <= allowance <= MAX_ALLOWANCE * target

    def tokens(decision):
        needed = decision.tokens * (votes + SETUP_VOTES) / (decision.advice.votes + SETUP_VOTES)
        if decision.ended_by not in ("vote", "n"):
            needed *= CUT_SHORT_FACTOR
        return max(decision.first_tokens, min(needed, allowance))

    least = fmean(decision.first_tokens for decision in earlier)
    assert fmean(map(tokens, earlier)) <= max(target, least) + 1e-9


def test_what_easy_problems_leave_goes_to_hard_ones():
    advice = advise(Advice(), [EASY, EASY, EASY, HARD] * 10, 200, MAX_ALLOWANCE * 200)
    assert advice.allowance > 400
    assert advice.cap > advice.allowance


@pytest.mark.parametrize(
    ("inner", "method"),
    [
        (None, "mcts"),
        ((0.8, 0.75, 0.85), "mcts"),
        ((0.75, 0.66, 0.84), "rebase"),
        ((0.52, 0.45, 0.6), "vote"),
        ((0.2, 0.15, 0.25), "vote"),
    ],
)
def test_scores_are_followed_as_far_as_labels_have_shown_that_they_say_something(inner, method):
    assert method_of(inner) == method
    line = [(0.0, 0.1), (1.0, 0.9)]
    measured = Calibration.of(line, None, None, inner)
    advice = Allocation(None, [], measured).advice("any")
    assert (advice.method, advice.auroc) == (method, inner[0] if inner else None)


def test_rounds_that_would_be_narrow_give_way_to_mcts():
    weak = Advice("rebase")
    assert advise(weak, [EASY] * 20, 160, 1600).method == "mcts"
    assert advise(weak, [EASY] * 20, 800, 8000).method == "rebase"


@pytest.mark.parametrize(("chains", "width"), [(0.2, 1), (2.4, 2), (4, 4), (16, 8), (400, 40)])
def test_the_larger_the_budget_the_wider_the_rounds(chains, width):
    target = round(chains * 80)
    assert advise(Advice("rebase"), [EASY] * 20, target, 8 * target).width == width
