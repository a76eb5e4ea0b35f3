"""What the problems of a run are advised, by those well before them."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.search import Advice, Allocation, Decision
from tts.search.allocation import LAG, MOST, Totals, advise, round_width, spend

RELIABLE = Decision(Advice(votes=1), "vote", 100, 80, high=(6, 6), low=(0, 0))
UNRELIABLE = Decision(
    Advice("rebase"), "allowance", 400, 200, (50, 100), (10, 50), chain_tokens=100
)


@st.composite
def decisions(draw):
    first = draw(st.integers(1, 500))
    tokens = first + draw(st.integers(0, 2000))
    advice = Advice(votes=draw(st.sampled_from([1, 2, 4])))
    return Decision(advice, draw(st.sampled_from(["vote", "allowance", "n"])), tokens, first)


def filled(problems, decision=RELIABLE, budget=200):
    allocation = Allocation(budget)
    for problem in range(problems):
        allocation.observe(str(problem), decision)
    return allocation


def totals(decisions):
    found = Totals()
    for decision in decisions:
        found = found.plus(decision)
    return found


@given(st.permutations(range(40)), st.integers(LAG, LAG + 39))
def test_advice_depends_on_the_problems_well_before_and_on_no_order(order, place):
    told, in_order = Allocation(200), Allocation(200)
    for problem in range(place + 1):
        told.place(str(problem))
        in_order.place(str(problem))
    by_problem = [replace(RELIABLE, tokens=80 + 7 * problem) for problem in range(40)]
    for problem in range(place - LAG + 1):
        in_order.observe(str(problem), by_problem[problem])
    for problem in order:  # later ones as well
        told.observe(str(problem), by_problem[problem])
    assert in_order.ready(str(place))
    assert told.advice(str(place)) == in_order.advice(str(place))


def test_a_problem_waits_for_those_before_it():
    allocation = Allocation(200)
    for problem in range(2 * LAG):
        allocation.place(str(problem))
    assert allocation.ready(str(LAG - 1))
    assert not allocation.ready(str(LAG))
    allocation.observe("1", RELIABLE)
    assert not allocation.ready(str(LAG))
    allocation.observe("0", RELIABLE)
    assert allocation.ready(str(LAG + 1))
    assert not allocation.ready(str(LAG + 2))


def test_the_first_problem_may_take_the_budget_and_no_more():
    first = Allocation(300).advice("a")
    assert (first.allowance, first.cap, first.samples) == (300, 300, 0)
    assert Allocation(None).advice("a") == Advice()


@given(st.lists(decisions(), min_size=1, max_size=40), st.integers(50, 3000))
def test_what_earlier_problems_would_have_taken_is_the_target_at_most(known, target):
    votes, allowance = spend(known, (1, 2, 4), target, MOST * target)
    assert 0 <= allowance <= MOST * target

    def taken(decision):
        needed = decision.tokens * votes / decision.advice.votes
        if decision.ended_by not in ("vote", "n"):
            needed = allowance
        return max(decision.first_tokens, min(needed, allowance))

    least = fmean(decision.first_tokens for decision in known)
    assert fmean(map(taken, known)) <= max(target, least) + 1e-9


def test_what_easy_problems_leave_goes_to_hard_ones():
    hard = replace(RELIABLE, ended_by="allowance", tokens=200)
    seen = [RELIABLE, RELIABLE, RELIABLE, hard] * 10
    advice = advise(39 + LAG, seen, totals(seen), 200)
    assert advice.allowance > 400
    assert advice.cap > advice.allowance


@pytest.mark.parametrize(
    ("high", "low", "gain", "method", "floor"),
    [
        (19, 2, 1.2, "mcts", 0.0),
        (15, 5, 1.2, "rebase", 1 / 9),
        (10, 9, 1.2, "rebase", 0.81),
        (10, 5, 0.9, "chains", 1 / 4),
        (10, 12, 0.9, "chains", 1.0),
        (19, 2, 0.9, "chains", 0.01),
    ],
)
def test_scores_are_followed_or_weigh_as_far_as_they_tell(high, low, gain, method, floor):
    seen = [compares(round(400 * gain), high=(50 * high, 1000), low=(50 * low, 1000))] * 200
    advice = advise(2 * LAG + 1, seen, totals(seen), 400)
    assert advice.method == method
    assert advice.floor == pytest.approx(floor, abs=0.02)
    assert advice.gain == pytest.approx(gain, abs=0.04)


def compares(searched, **given):
    """A problem in which independent chains agreed in 40% of pairs."""
    return replace(UNRELIABLE, independent=(400, 1000), searched=(searched, 1000), **given)


@pytest.mark.parametrize(
    ("searched", "budget", "chains"), [(500, 2000, 0), (420, 2000, 4), (420, 400, 0)]
)
def test_rebase_and_independent_chains_take_turns_where_it_gains_little(searched, budget, chains):
    seen = [compares(searched)] * 200
    found = [advise(2 * LAG + i, seen, totals(seen), budget) for i in range(8)]
    assert {advice.method for advice in found} == {"rebase"}
    assert [advice.chains for advice in found[1:]] == [chains] * 7
    assert found[0].chains > 0  # one of eight compares in any case


def test_chains_that_agree_without_rebase_count_as_if_it_had_agreed_with_them():
    ended = replace(UNRELIABLE, independent=(6, 6), searched=(0, 0), ended_by="vote")
    found = totals([ended])
    assert (found.independent, found.searched) == (1.0, 1.0)
    cut = totals([replace(ended, ended_by="allowance")])
    assert (cut.independent, cut.searched) == (0.0, 0.0)


def test_of_the_first_problems_half_compare_the_methods():
    allocation = Allocation(300)
    first = [allocation.advice(str(place)) for place in range(LAG)]
    assert [advice.method for advice in first] == ["mcts", "rebase"] * (LAG // 2)
    assert [advice.samples for advice in first[::2]] == [0, *(LAG // 2 - 1) * [4]]
    assert all(advice.chains for advice in first[1::2])


@pytest.mark.parametrize(("chains", "width"), [(0.2, 1), (2.4, 2), (4, 4), (16, 8), (1000, 16)])
def test_the_larger_the_budget_the_wider_the_rounds(chains, width):
    assert round_width(chains) == width


def test_scores_are_not_believed_once_high_ones_disagree():
    liar = replace(compares(360), high=(2, 6), low=(2, 6))
    last = str(4 * LAG - 1)
    assert filled(4 * LAG).advice(last).method == "mcts"
    doubted = filled(4 * LAG, liar, budget=400).advice(last)
    assert doubted.method == "chains"
    assert doubted.floor > 0.8
    assert doubted.reliability < 0.5


def test_samples_are_drawn_more_rarely_once_the_method_is_certain():
    allocation = filled(3 * LAG)
    sampled = [allocation.advice(str(place)).samples for place in range(2 * LAG, 3 * LAG)]
    assert 0 < sum(map(bool, sampled)) <= LAG // 4


def test_what_was_not_seen_is_not_said_to_be_known():
    seen = [replace(RELIABLE, high=(0, 0), low=(0, 0), independent=(0, 0), searched=(0, 0))] * LAG
    advice = advise(2 * LAG, seen, totals(seen), 200)
    assert (advice.reliability, advice.gain) == (None, None)
    seen = [replace(compares(0), independent=(3, 6))] * LAG
    assert advise(2 * LAG, seen, totals(seen), 200).gain < 1, "none agreed with those of REBASE"
