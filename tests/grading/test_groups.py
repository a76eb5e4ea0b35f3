import asyncio
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.grading import Outcome, Reason, Verdict, group_answers


class FractionGrader:
    """Knows fractions, and counts what it is asked."""

    def __init__(self):
        self.asked = []

    async def equal(self, prediction, reference):
        self.asked.append((prediction, reference))
        same = Fraction(prediction) == Fraction(reference)
        return Verdict(Outcome.EQUAL if same else Outcome.DIFFERENT, Reason.MATH)


@pytest.mark.parametrize(
    ("answers", "groups"),
    [
        ([], []),
        ([None, " "], [-1, -1]),
        (["1", "2", "1"], [0, 1, 0]),
        ([None, "2", "1", None, "2.0"], [-1, 0, 1, -1, 0]),
        ([r"\frac12", "0.5", "x+1", r"\dfrac{1}{2}", "1+x", "1/3"], [0, 0, 1, 0, 1, 2]),
        (["1,22", "1.22"], [0, 1]),  # a list, perhaps: only a reference decides
        (["D", "(D) 12 km", "(C) 3 km"], [0, 0, 1]),
        (["３", "½", "3", "0.5"], [0, 1, 0, 1]),
        (["5 m", "5 cm", "500 cm"], [0, 1, 0]),
        (["9^{9^{9^9}}", "9^{9^{9^9}}+1", "9^{9^{9^9}}"], [0, 1, 0]),
    ],
)
async def test_equal_answers_share_a_group(grader, answers, groups):
    assert await group_answers(answers, grader) == groups


fractions = st.tuples(st.integers(-3, 3), st.integers(1, 4)).map(
    lambda pair: f"{pair[0]}/{pair[1]}"
)


@settings(deadline=None)
@given(st.lists(st.none() | fractions, max_size=12))
def test_groups_are_the_classes_of_equality_in_order_of_appearance(answers):
    grader = FractionGrader()
    groups = asyncio.run(group_answers(answers, grader))
    values = [None if answer is None else Fraction(answer) for answer in answers]
    order = list(dict.fromkeys(value for value in values if value is not None))
    assert groups == [-1 if value is None else order.index(value) for value in values]
    assert len(grader.asked) == len(set(grader.asked))


POOL = [
    *("0.5", "50", "50\\%", "50%", r"\frac12", "0.5\\%", "0.005", "50.0\\%", "1e3", "1000"),
    *("x=1", "1", "y=1", "2x+z=1", "0.333333", "1/3", "333333/1000000", r"33.3333\%"),
    *("(1,2)", "2,1", r"\{1,2\}", "1<x<2", "D", "(D) 12 km", "1,22", "1.22", "1.6e-19", "0"),
]


def partition(answers, grader):
    groups = asyncio.run(group_answers(answers, grader))
    return {frozenset(a for a, g in zip(answers, groups, strict=True) if g == n) for n in groups}


@settings(deadline=None, max_examples=amount(40, 400))
@given(st.lists(st.sampled_from(POOL), max_size=9), st.randoms())
def test_which_answers_share_a_group_does_not_depend_on_their_order(grader, answers, random):
    shuffled = random.sample(answers, len(answers))
    groups = partition(answers, grader)
    assert partition(shuffled, grader) == groups
    for apart in ({"0.5", "50"}, {"50\\%", "0.5\\%"}, {"1.6e-19", "0"}):
        assert not any(apart <= group for group in groups)


@pytest.mark.parametrize(
    ("answers", "groups"),
    [
        (["0.5", "50\\%", "50"], [0, 1, 1]),
        (["50\\%", "50", "0.5", "0.5", "0.5"], [0, 0, 1, 1, 1]),
        (["0.5", "50\\%", r"\frac12", "7"], [0, 0, 0, 1]),
        (["50\\%", "0.5\\%", "0.5"], [0, 1, 1]),
        (["1e3", "1000"], [0, 0]),
    ],
)
def test_a_percentage_votes_with_the_number_before_the_sign_or_else_with_its_value(
    grader, answers, groups
):
    assert asyncio.run(group_answers(answers, grader)) == groups


def test_one_spelling_is_compared_once():
    grader = FractionGrader()
    assert asyncio.run(group_answers(["1/2", "2/4", " 2/4", "1/2.", "2 / 4"], grader)) == [0] * 5
    assert grader.asked == [("2/4", "1/2")]
