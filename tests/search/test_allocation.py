"""What the problems of a run are advised, by those well before them."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.search import Advice, Allocation, Calibration, Decision, Evidence
from tts.search.allocation import CERTAIN, LAG, MOST, advise, spend

EASY = Decision(Advice(votes=1), "vote", 100, 80, chain_tokens=80)
HARD = replace(EASY, ended_by="allowance", tokens=200)
AGREES = Evidence(((0.9, 0, 0), (0.8, 1, 0), (0.2, 2, 1)), 0.1, 0.9)
DIFFERS = Evidence(((0.9, 0, 0), (0.8, 1, 1), (0.2, 2, 2)), 0.1, 0.9)


@st.composite
def decisions(draw):
    first = draw(st.integers(1, 500))
    tokens = first + draw(st.integers(0, 2000))
    advice = Advice(votes=draw(st.sampled_from([1, 2, 4])))
    return Decision(advice, draw(st.sampled_from(["vote", "allowance", "n"])), tokens, first)


def filled(problems, evidence=AGREES, decision=EASY, budget=200):
    allocation = Allocation(budget)
    for problem in range(problems):
        allocation.observe(str(problem), evidence, decision)
    return allocation


@given(st.permutations(range(40)), st.integers(LAG, LAG + 39))
def test_advice_depends_on_the_problems_well_before_and_on_no_order(order, place):
    told, in_order = Allocation(200), Allocation(200)
    for problem in range(place + 1):
        told.place(str(problem))
        in_order.place(str(problem))
    seen = [
        ((AGREES, DIFFERS)[problem % 2], replace(EASY, tokens=80 + 7 * problem))
        for problem in range(40)
    ]
    for problem in range(place - LAG + 1):
        in_order.observe(str(problem), *seen[problem])
    for problem in order:  # later ones as well
        told.observe(str(problem), *seen[problem])
    assert in_order.ready(str(place))
    assert told.advice(str(place)) == in_order.advice(str(place))
    assert told.calibration(str(place)) == in_order.calibration(str(place))


def test_a_problem_waits_for_those_before_it_and_the_later_the_more_may_run():
    allocation = Allocation(200)
    for problem in range(16 * LAG):
        allocation.place(str(problem))
    assert allocation.ready(str(LAG - 1))
    assert not allocation.ready(str(LAG))
    allocation.observe("1", AGREES, EASY)
    assert not allocation.ready(str(LAG))
    allocation.observe("0", AGREES, EASY)
    assert allocation.ready(str(LAG + 1))
    assert not allocation.ready(str(LAG + 2))
    for problem in range(2, 8 * LAG):
        allocation.observe(str(problem), AGREES, EASY)
    assert allocation.ready(str(10 * LAG - 1))
    assert not allocation.ready(str(12 * LAG))


def test_nothing_waits_where_nothing_is_learnt():
    given = Calibration(((0.8, 0.0), (1.0, 0.9)))
    fixed = Allocation(advises=False, learns=False, given=given)
    assert all(fixed.ready(str(place)) for place in range(3 * LAG))
    assert fixed.calibration("7") is given
    assert fixed.advice("7") is None


def test_the_first_problem_may_take_the_budget_and_no_more():
    first = Allocation(300).advice("a")
    assert (first.allowance, first.cap, first.samples) == (300, 300, 0)
    assert Allocation(None).advice("a") == Advice()


@given(st.lists(decisions(), min_size=1, max_size=40), st.integers(50, 3000))
def test_what_earlier_problems_would_have_taken_is_the_target_at_most(known, target):
    votes, allowance = spend(known, target, MOST * target)
    assert 0 <= allowance <= MOST * target

    def taken(decision):
        needed = decision.tokens * votes / decision.advice.votes
        if decision.ended_by not in ("vote", "n"):
            needed = allowance
        return max(decision.first_tokens, min(needed, allowance))

    least = fmean(decision.first_tokens for decision in known)
    assert fmean(map(taken, known)) <= max(target, least) + 1e-9


def test_what_easy_problems_leave_goes_to_hard_ones():
    known = [EASY, EASY, EASY, HARD] * 10
    advice = advise(39 + LAG, known, None, 200, sum(200 - done.tokens for done in known))
    assert advice.allowance > 400
    assert advice.cap > advice.allowance


@pytest.mark.parametrize(
    ("trust", "budget", "method"),
    [
        (None, 400, "mcts"),
        (CERTAIN, 400, "mcts"),
        (0.3, 400, "rebase"),
        (0.3, 160, "mcts"),
        (0.3, None, "rebase"),
    ],
)
def test_scores_are_followed_as_far_as_they_are_worth_it(trust, budget, method):
    advice = advise(2 * LAG + 1, [replace(EASY, tokens=budget or 400)] * 128, trust, budget, 0)
    assert (advice.method, advice.trust) == (method, trust)


@pytest.mark.parametrize(("chains", "width"), [(0.2, 1), (2.4, 2), (4, 4), (16, 8), (400, 40)])
def test_the_larger_the_budget_the_wider_the_rounds(chains, width):
    even = replace(EASY, tokens=round(chains * 80))
    assert advise(2 * LAG, [even] * LAG, 0.3, even.tokens, 0).width == width


def test_scores_are_not_believed_once_high_ones_disagree():
    last = str(4 * LAG - 1)
    assert filled(4 * LAG).advice(last).method == "mcts"
    doubted = filled(4 * LAG, DIFFERS, budget=400)
    assert doubted.advice(last).method == "rebase"
    assert doubted.calibration(last)(0.9) < 0.3


def test_samples_are_drawn_more_rarely_later_on():
    allocation = filled(3 * LAG)
    sampled = [allocation.advice(str(place)).samples for place in range(2 * LAG, 3 * LAG)]
    assert 0 < sum(map(bool, sampled)) <= LAG // 4


def test_of_a_problem_that_failed_nothing_is_learnt():
    allocation = Allocation(advises=False)
    for place in range(LAG):
        allocation.observe(str(place), None)
    assert allocation.ready(str(LAG))
    assert allocation.calibration(str(LAG + 7)) is None
