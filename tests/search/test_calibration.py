"""What scores are worth: learnt from agreement, whatever their scale, and used by every search."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import END, answer, build, configs, grow, worlds

from tts.grading.votes import answer_form
from tts.search import Evidence, SampleSearchConfig, Scored, evidence_of
from tts.search.calibration import isotonic, learn

GRID = [place / 100 for place in range(101)]


def problems(seed, scores, count=100, chains=6):
    """Problems with as many wrong answers as right ones, scored by `scores(right, rng)`."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        right = [rng.random() < 0.5 for _ in range(chains)]
        scored = [scores(each, rng) for each in right]
        answers = [0 if each else place + 1 for place, each in enumerate(right)]
        chained = tuple((score, place, answers[place]) for place, score in enumerate(scored))
        found.append(Evidence(chained, min(scored), max(scored)))
    return found


def knowing(right, rng):
    return rng.uniform(0.6, 1) if right else rng.uniform(0, 0.7)


def scaled(evidence, scale):
    chains = tuple((scale(score), first, given) for score, first, given in evidence.chains)
    return Evidence(chains, scale(evidence.lowest), scale(evidence.highest))


@settings(max_examples=amount(20, 200), deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.8), st.floats(0.1, 0.2))
def test_any_scale_has_the_same_worths(seed, low, span):
    known = problems(seed, knowing)

    def scale(score):
        return low + span * score

    plain, other = learn(known), learn([scaled(each, scale) for each in known])
    inside = [score for score in GRID if known[0].lowest <= score <= 1]
    for score in inside:
        assert other(scale(score)) == pytest.approx(plain(score), abs=0.02)


@pytest.mark.parametrize("power", [0.2, 5.0])
def test_what_is_right_is_worth_much_on_a_bent_scale_too(power):
    found = learn([scaled(each, lambda score: score**power) for each in problems(1, knowing)])
    assert found(0.95**power) > 0.6
    assert found(0.2**power) < 0.25


@settings(max_examples=amount(50, 400), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.integers(-1, 2)), max_size=9))
def test_a_better_score_is_worth_more(chains):
    scores = [score for score, _, _ in chains] or [0.5]
    found = learn([Evidence(tuple(chains), min(scores), max(scores))] * 3)
    if found is None:
        return
    worths = [found(score) for score in GRID]
    assert 0 <= worths[0] <= worths[-1] <= 1
    assert all(one <= other for one, other in pairwise(worths))
    scores = [score for score, _ in found.points]
    assert all(one < other for one, other in pairwise(scores))


def test_scores_that_tell_nothing_are_all_worth_the_same():
    found = learn(problems(2, lambda right, rng: rng.random()))
    assert found(0.9) - found(0.1) < 0.2
    assert learn(problems(2, lambda right, rng: 0.5)) is None, "one score has no order"
    assert learn([Evidence(())] * 50) is None


def test_chains_that_share_a_first_step_say_nothing():
    one_subtree = replace(problems(3, knowing)[0], chains=((0.9, 0, 1), (0.8, 0, 1), (0.1, 0, 1)))
    assert learn([one_subtree] * 50) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=12))
def test_pooling_keeps_means_and_never_falls(pairs):
    values, weights = zip(*pairs, strict=True)
    rising = isotonic(values, weights)
    assert all(one <= other + 1e-12 for one, other in pairwise(rising))
    before = sum(value * weight for value, weight in pairs)
    assert sum(v * w for v, w in zip(rising, weights, strict=True)) == pytest.approx(before)
    if list(values) == sorted(values):
        assert rising == pytest.approx(list(values))


def test_evidence_is_of_complete_chains():
    search = build(SampleSearchConfig(n=3))
    grow(search, scores=(0.2, 0.9, 0.5), thoughts=END)
    found = evidence_of(search.tree, lambda text: None if text else answer_form(text))
    assert found == Evidence(((0.2, 0, -1), (0.9, 1, -1), (0.5, 2, -1)), 0.2, 0.9)
    assert evidence_of(build(SampleSearchConfig(n=1)).tree, answer_form) == Evidence(())


@settings(max_examples=amount(60, 500), deadline=None)
@given(configs, worlds)
def test_every_search_goes_by_what_scores_are_worth(config, world):
    """Half scores, each worth twice as much, grow the tree of the whole ones."""
    plain, halved = build(config), build(config)
    halved.tree.worth = lambda score: min(1.0, 2 * score)
    if hasattr(halved, "_worth"):
        halved._worth = halved.tree.worth

    def run(search, scale):
        pending = search.ask()
        while pending and not search.done:
            told = answer(pending.pop(0), world)
            if isinstance(told, Scored):
                told = replace(told, score=round(told.score, 3) * scale)
            search.tell(told)
            pending += search.ask()
            needs = search.needs()
            pending = [work for work in pending if needs.get(work.node, True)]
        return search.result()

    one, other = run(plain, 1.0), run(halved, 0.5)
    assert one.tree.digest() == other.tree.digest()
    assert one.completions == other.completions
