"""What the problems of a run are advised, by those of earlier stages."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.search import Advice, Allocation, Calibration, Decision
from tts.search.allocation import (
    CUT_SHORT_FACTOR,
    MAX_ALLOWANCE,
    MIN_PROBLEMS,
    SETUP_VOTES,
    advise,
    method_of,
    spend,
)

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
