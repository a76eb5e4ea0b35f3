"""Votes over completions."""

import pytest

from tts.grading.votes import Answers, Group, answer_form, judge, right_by_rule, vote
from tts.search import AnswerForm, Completion, SearchResult, Tree
from tts.search.thought import aggregate


def completions(*scores):
    return [Completion((i,), "", score) for i, score in enumerate(scores)]


LONG = [aggregate([step] * 30, "prod") for step in (0.35, 0.36, 0.35)]
"""Thirty steps of 0.35 are 2.1e-14, and of 0.36 4.9e-14."""


@pytest.mark.parametrize(
    ("scores", "answers", "groups", "chosen"),
    [
        ([0.9, 0.5, 0.5, 0.1, 0.1, 0.1], [*"abbccc"], [0, 1, 1, 2, 2, 2], ("a", "b", "c")),
        # ties go to the first in path order, and no answer gets no vote
        ([0.5, 0.5, 0.9], ["x", "y", None], [0, 1, -1], (None, "x", "x")),
        ([0.5, 0.5, 0.5], ["x", "y", "y"], [0, 1, 1], ("x", "y", "y")),
        ([0.5], [None], [-1], (None, None, None)),
        (LONG, ["x", "y", None], [0, 1, -1], ("y", "y", "x")),
        # without scores only the majority speaks, and one that has none counts as the lowest
        ([None, None, None], ["x", "y", "y"], [0, 1, 1], (None, None, "y")),
        ([None, 0.0, 0.1], ["x", "y", "z"], [0, 1, 2], ("z", "z", "x")),
    ],
)
def test_each_rule_chooses_as_it_should(scores, answers, groups, chosen):
    assert vote(completions(*scores), answers, groups) == Answers(*chosen)


async def test_equal_answers_are_grouped_before_the_vote(grader):
    texts = [r"\boxed{\frac{1}{2}}", r"\boxed{0.5}", r"\boxed{3}", "no answer"]
    scored = enumerate(zip(texts, (0.4, 0.4, 0.7, 1.0), strict=True))
    done = tuple(Completion((i,), text, score) for i, (text, score) in scored)
    result = SearchResult(done, Tree())
    judged = await judge(result, "0.50", grader)
    unreferenced = await judge(result, None, grader)
    undecided = await judge(result, "9^{9^{9^9}}", grader)
    assert judged.answers.weighted == r"\frac{1}{2}"
    assert judged.correct == {"best": False, "weighted": True, "majority": True}
    assert (judged.any_correct, judged.undecided) == (True, 0)
    assert judged.groups == (Group(r"\frac{1}{2}", True), Group("3", False))
    assert judged.group_of == (0, 0, 1, -1)
    assert (unreferenced.correct, unreferenced.any_correct) == (None, None)
    assert [group.correct for group in unreferenced.groups] == [None, None]
    assert (undecided.any_correct, undecided.undecided) == (False, 2)


async def test_groups_are_in_the_order_of_completions_and_a_chain_may_come_twice(grader):
    done = [Completion((1,), r"\boxed{2}", 0.9), Completion((0,), r"\boxed{3}", 0.5)]
    judged = await judge(SearchResult((done[0], done[0], done[1]), Tree()), "2", grader)
    assert [group.answer for group in judged.groups] == ["3", "2"]  # in path order
    assert judged.group_of == (1, 1, 0)
    assert judged.correct == {"best": True, "weighted": True, "majority": True}


def test_a_subset_votes_as_if_it_were_all():
    groups = [Group("3", False), Group("2", True)]
    everything = completions(0.9, 0.2, 0.2)
    assert right_by_rule(everything, [0, 1, 1], groups) == {
        "best": False,
        "weighted": False,
        "majority": True,
    }
    assert right_by_rule(everything[1:], [1, 1], groups)["best"]
    assert right_by_rule(completions(None), [1], groups) == {"majority": True}
    assert right_by_rule(completions(0.5), [-1], groups)["best"] is False


def test_answer_forms_are_exact_only_for_integers():
    assert answer_form(r"so \boxed{1,000}.") == AnswerForm("1000", True)
    assert answer_form(r"so \boxed{\dfrac12}.") == AnswerForm(r"\frac12", False)
    assert answer_form(r"so \boxed{0.5}.") == AnswerForm("0.5", False)
    assert answer_form("so 5.") is None


async def test_ties_may_go_by_the_order_of_the_completions(grader):
    listed = tuple(
        Completion((node,), rf"\boxed{{{answer}}}", 0.5) for node, answer in ((2, 7), (0, 5))
    )
    result = SearchResult(listed, Tree())
    by_path = await judge(result, None, grader)
    judged = await judge(result, None, grader, as_listed=True)
    assert by_path.answers.majority == "5"
    assert (judged.answers.majority, judged.answers.best) == ("7", "7")
    assert [judged.groups[group].answer for group in judged.group_of] == ["7", "5"]
