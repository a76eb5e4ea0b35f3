"""Votes over completions, and the strategies' parameters."""

import asyncio

import pytest

from tts.build.errors import ConfigError
from tts.grading import Grader
from tts.grading.votes import Group, answer_form, judge, right_by_rule, vote
from tts.search import AnswerForm, Completion, SearchResult, Tree
from tts.search.thought import aggregate
from tts.strategies.catalog import STRATEGIES, find_strategy


def completions(*scores):
    return [Completion((i,), "", score) for i, score in enumerate(scores)]


def test_the_three_rules_differ_as_they_should():
    done = completions(0.9, 0.5, 0.5, 0.1, 0.1, 0.1)
    answers = vote(done, ["a", "b", "b", "c", "c", "c"], [0, 1, 1, 2, 2, 2])
    assert (answers.best, answers.weighted, answers.majority) == ("a", "b", "c")


def test_ties_go_to_the_first_in_path_order_and_no_answer_gets_no_vote():
    answers = vote(completions(0.5, 0.5, 0.9), ["x", "y", None], [0, 1, -1])
    assert (answers.best, answers.weighted, answers.majority) == (None, "x", "x")
    answers = vote(completions(0.5), [None], [-1])
    assert (answers.best, answers.weighted, answers.majority) == (None, None, None)


def test_votes_of_long_products_are_told_apart():
    """Thirty steps of 0.35 are 2.1e-14, and of 0.36 4.9e-14."""
    scores = [aggregate([step] * 30, "prod") for step in (0.35, 0.36, 0.35)]
    answers = vote(completions(*scores), ["x", "y", None], [0, 1, -1])
    assert (answers.best, answers.weighted) == ("y", "y")


def test_without_scores_only_the_majority_speaks():
    answers = vote(completions(None, None, None), ["x", "y", "y"], [0, 1, 1])
    assert (answers.best, answers.weighted, answers.majority) == (None, None, "y")


async def test_equal_answers_are_grouped_before_the_vote():
    texts = [r"\boxed{\frac{1}{2}}", r"\boxed{0.5}", r"\boxed{3}", "no answer"]
    result = SearchResult(
        tuple(
            Completion((i,), text, score)
            for i, (text, score) in enumerate(zip(texts, (0.4, 0.4, 0.7, 1.0), strict=True))
        ),
        Tree(),
    )

    async with Grader() as grader:
        judged, unreferenced = (
            await judge(result, "0.50", grader),
            await judge(result, None, grader),
        )
    assert judged.answers.weighted == r"\frac{1}{2}"
    assert judged.correct == {"best": False, "weighted": True, "majority": True}
    assert judged.any_correct
    assert unreferenced.correct is None
    assert judged.groups == (Group(r"\frac{1}{2}", True), Group("3", False))
    assert judged.group_of == (0, 0, 1, -1)
    assert [group.correct for group in unreferenced.groups] == [None, None]


async def test_groups_are_in_the_order_of_completions_and_a_chain_may_come_twice():
    done = [Completion((1,), r"\boxed{2}", 0.9), Completion((0,), r"\boxed{3}", 0.5)]

    async with Grader() as grader:
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


def test_every_strategy_configures_by_default_and_names_what_is_wrong():
    for strategy in STRATEGIES.values():
        strategy.configure({}, context=4096)
    assert find_strategy("greedy").configure({}, context=4096).n == 1
    with pytest.raises(ConfigError, match="no strategy 'bean'") as caught:
        find_strategy("bean")
    assert "beam-search" in str(caught.value)
    with pytest.raises(ConfigError, match="n is 4, but strategy greedy has it fixed at 1"):
        find_strategy("greedy").configure({"n": 4}, context=4096)
    with pytest.raises(ConfigError, match="no parameter 'beam_width'; it has n, temperature"):
        find_strategy("majority-vote").configure({"beam_width": 4}, context=4096)
    with pytest.raises(ConfigError, match="n is 10, which is not a multiple of beam_width"):
        find_strategy("beam-search").configure({"n": 10}, context=4096)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_budget_beyond_the_context_is_refused_and_the_default_adapts(strategy):
    assert strategy.configure({}, context=4096).max_tokens == 2048
    assert strategy.configure({}, context=320).max_tokens == 320
    assert strategy.configure({"max_tokens": 320}, context=320).max_tokens == 320
    with pytest.raises(ConfigError, match=r"max_tokens is 321, but .* 320 .*max_seq_len"):
        strategy.configure({"max_tokens": 321}, context=320)


def test_answer_forms_are_exact_only_for_integers():
    assert answer_form(r"so \boxed{1,000}.") == AnswerForm("1000", True)
    assert answer_form(r"so \boxed{\dfrac12}.") == AnswerForm(r"\frac12", False)
    assert answer_form(r"so \boxed{0.5}.") == AnswerForm("0.5", False)
    assert answer_form("so 5.") is None


def test_ties_may_go_by_the_order_of_the_completions():
    listed = tuple(
        Completion((node,), rf"\boxed{{{answer}}}", 0.5) for node, answer in ((2, 7), (0, 5))
    )

    async def answers(as_listed):
        async with Grader() as grader:
            return await judge(SearchResult(listed, Tree()), None, grader, as_listed=as_listed)

    assert asyncio.run(answers(as_listed=False)).answers.majority == "5"
    judged = asyncio.run(answers(as_listed=True))
    assert (judged.answers.majority, judged.answers.best) == ("7", "7")
    assert [judged.groups[group].answer for group in judged.group_of] == ["7", "5"]
