import asyncio
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.grading import Grader, Outcome, Reason, Verdict, group_answers


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
        (["9^{9^{9^9}}", "9^{9^{9^9}}+1", "9^{9^{9^9}}"], [0, 1, 0]),
    ],
)
def test_equal_answers_share_a_group(answers, groups):
    async def main():
        async with Grader(cpu_s=10) as grader:
            return await group_answers(answers, grader)

    assert asyncio.run(main()) == groups


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


def test_one_spelling_is_compared_once():
    grader = FractionGrader()
    assert asyncio.run(group_answers(["1/2", "2/4", " 2/4", "1/2.", "2 / 4"], grader)) == [0] * 5
    assert grader.asked == [("2/4", "1/2")]
