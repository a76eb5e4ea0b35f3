"""The compute-optimal choice: samples are kept, and their mean score alone decides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.amounts import amount
from tests.search.driving import answer, auto_configs, build, drive, worlds
from tests.search.worlds import budgets

from tts.search import Expand, Fate, Generated, SampleSearchConfig, Scored, Stop, Thought
from tts.search.auto import Budget, Choice, Policy
from tts.strategies.auto import AutoConfig

TWO_WAYS = Budget(
    n=4,
    samples=2,
    choices=(Choice(below=0.5, strategy="dvts", n=4), Choice(strategy="weighted-best-of-n", n=2)),
)


def sampled(scores, policy=TWO_WAYS):
    """A search that was told its samples, each of two steps and with one of these scores."""
    search = build(AutoConfig(policy=policy))
    assert [work.node for work in search.ask()] == [(chain,) for chain in range(len(scores))]
    for chain in range(len(scores)):
        steps = (Thought((chain,), "a", Stop.STEP), Thought((chain,), r"\boxed{5}", Stop.END))
        search.tell(Generated((chain,), steps))
    search.ask()
    for chain, score in enumerate(scores):
        search.tell(Scored((chain, 0), score))
    return search


def test_an_easy_problem_ends_with_its_samples():
    search = sampled([0.4, 0.6])
    assert isinstance(search.chosen, SampleSearchConfig)
    assert search.done
    assert [done.node for done in search.result().completions] == [(1, 0), (0, 0)]


def test_a_hard_problem_goes_on_from_the_first_steps_of_its_samples():
    search = sampled([0.4, 0.5])
    asked = search.ask()
    assert [work.node for work in asked if isinstance(work, Expand)] == [(2,), (3,)]
    assert {work.node for work in asked if not isinstance(work, Expand)} == {(0,), (1,)}
    assert not search.done
    assert search.tree[0,].thought == Thought((0,), "a", Stop.STEP)


def test_samples_that_the_search_goes_on_without_stay_in_the_tree():
    search = sampled([0.4, 0.5])
    pending = search.ask()
    while pending:
        work = pending.pop()
        if isinstance(work, Expand):
            search.tell(Generated(work.node, (Thought((9,), "x", Stop.END),)))
        else:
            search.tell(Scored(work.node, 0.1 if work.node in [(0,), (1,)] else 1.0))
        pending += search.ask()
    fates = {node.path: node.fate for node in search.result().tree}
    # steps 2 and 3 score best and end their subtree, whose first steps all come out
    assert {path for path, fate in fates.items() if fate is Fate.COMPLETED} == {
        (0,),
        (1,),
        (2,),
        (3,),
    }
    assert fates[0, 0] is fates[1, 0] is Fate.SURPLUS


@settings(max_examples=amount(25, 100), deadline=None)
@given(auto_configs, worlds)
def test_nothing_is_asked_for_twice_and_the_mean_score_decides(config, world):
    search = build(config)
    asked = drive(search, world)
    requests = [(type(work), work.node) for work in asked]
    assert len(set(requests)) == len(requests)
    policy = config.policy
    chains = [(chain,) for chain in range(policy.samples)]
    assert [work.node for work in asked[: policy.samples]] == chains
    plain = build(SampleSearchConfig(n=policy.samples, agg_strategy=config.agg_strategy))
    drive(plain, world)
    scores = [done.score for done in plain.result().completions]
    choice = policy.choose(round(sum(scores) / len(scores), 11))
    assert search.chosen == choice.config(config)
    assert all(search.tree[node.path].thought == node.thought for node in plain.tree)


@settings(max_examples=amount(25, 100), deadline=None)
@given(auto_configs, worlds)
def test_the_samples_count_when_the_search_is_stopped(config, world):
    search = build(config)
    pending = search.ask()
    while pending and not search.chosen:
        search.tell(answer(pending.pop(), world))
        pending += search.ask()
    found = search.stop()
    assert found.completions
    assert search.ask() == []
    assert not any(node.fate is Fate.OPEN for node in found.tree)


@given(budgets(), st.floats(0, 1), st.floats(0, 1))
def test_choices_are_in_the_order_of_their_thresholds(budget, one, other):
    lower, higher = sorted([one, other])
    places = [budget.choices.index(budget.choose(score)) for score in (lower, higher)]
    assert places == sorted(places)
    assert all(score < (budget.choose(score).below or 2) for score in (lower, higher))


def test_the_largest_budget_within_n_is_taken():
    policy = Policy(budgets=tuple(TWO_WAYS.model_copy(update={"n": n}) for n in (8, 2, 32)))
    assert [policy.budget(n).n for n in (2, 7, 8, 31, 1000)] == [2, 2, 8, 8, 32]
    with pytest.raises(ValueError, match="smallest budget of the policy is 2"):
        policy.budget(1)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ([Choice(strategy="dvts", n=4), Choice(strategy="dvts", n=8)], "must increase"),
        ([Choice(below=0.5, strategy="dvts", n=4)], "the last choice has none"),
        (
            [
                Choice(below=0.5, strategy="dvts", n=4),
                Choice(below=0.5, strategy="dvts", n=8),
                Choice(strategy="dvts", n=8),
            ],
            "must increase",
        ),
        ([Choice(strategy="rebase", n=1)], "fewer completions than there are samples"),
        ([], "choices"),
    ],
)
def test_a_policy_that_leaves_a_score_without_a_choice_is_refused(choices, said):
    with pytest.raises(ValidationError, match=said):
        Budget(n=4, samples=2, choices=tuple(choices))


@pytest.mark.parametrize(
    ("strategy", "n", "said"), [("greedy", 4, "cannot be chosen"), ("dvts", 6, "beam_width")]
)
def test_a_search_that_cannot_be_chosen_is_refused(strategy, n, said):
    with pytest.raises(ValidationError, match=said):
        Choice(strategy=strategy, n=n)
