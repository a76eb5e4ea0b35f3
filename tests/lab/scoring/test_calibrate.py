"""Maps from scores to probabilities: rising, by order alone, and believed only where they help."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.scoring.worlds import VERIFIERS, good, logistic, scored_chains

from tts.lab.scoring import calibrate as calibrate_module
from tts.lab.scoring.calibrate import apply, calibrate, calibration_fields, fit
from tts.lab.scoring.measurement import measure
from tts.runs.clustered import Observations

ROWS = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=300)


def observed(scores, right, chains=8):
    count = -(-len(scores) // chains)
    return Observations.of(scores, right, np.arange(len(scores)) // chains, count)


def rows_as(rows, scale):
    return observed([scale(score / 100) for score, _ in rows], [right for _, right in rows])


def maps_of(verifier, problems=150, **fields):
    measured = measure(scored_chains(verifier, problems, **fields))
    final = measured.final and measured.final.these
    inner = measured.inner and measured.inner.these
    return calibrate(final, inner), measured


@given(ROWS)
def test_a_map_rises_strictly_from_0_to_1_within_probabilities(rows):
    points = fit(rows_as(rows, lambda score: score))
    (first, *_), probabilities = zip(*points, strict=True)
    assert first == 0
    assert points[-1][0] == 1
    for (low, least), (high, most) in itertools.pairwise(points):
        assert low < high
        assert least < most
    assert 0 < probabilities[0] < probabilities[-1] < 1
    assert len(points) <= 14


@given(ROWS, st.sampled_from([lambda s: s**0.5, lambda s: 0.3 * s + 0.2, lambda s: s / (2 - s)]))
def test_only_the_order_of_scores_counts(rows, scale):
    plain, other = (rows_as(rows, each) for each in (lambda score: score, scale))
    at = dict(fit(plain))
    moved = dict(fit(other))
    inner = {round(float(scale(score)), 6): at[score] for score in at if 0 < score < 1}
    for score, probability in inner.items():
        if score in moved:
            assert moved[score] == probability
    shared = inner.keys() & moved.keys()
    assert len(shared) >= len(inner) - 2


def test_a_known_map_is_recovered():
    generator = np.random.default_rng(0)
    scores = np.round(generator.random(1600), 4)
    right = generator.random(1600) < logistic(8 * (scores - 0.6))
    at = np.linspace(0.02, 0.98, 49)
    assert np.abs(apply(fit(observed(scores, right)), at) - logistic(8 * (at - 0.6))).max() < 0.09
    assert np.abs(apply(fit(observed(scores, right)), at) - logistic(8 * (at - 0.6))).mean() < 0.03


def test_a_map_is_believed_where_scores_are_off_and_refused_where_they_are_probabilities():
    for name in ("squeezed", "worthless", "inverted", "constant", "saturated"):
        maps, _ = maps_of(VERIFIERS[name])
        assert maps.accepted, name
        assert maps.final.mapped["Brier score"].value < maps.final.raw["Brier score"].value
        assert "better than the scores do: log loss falls by" in maps.verdict
    generator = np.random.default_rng(1)
    scores = generator.random(1600)
    honest = calibrate(observed(scores, generator.random(1600) < scores))
    assert not honest.accepted
    assert honest.verdict.startswith("No map: scores of last steps predict other problems")


def test_worthless_and_inverted_scores_all_stand_for_nearly_the_same():
    for name in ("worthless", "inverted", "constant"):
        maps, _ = maps_of(VERIFIERS[name])
        low, high = apply(maps.final.points, np.array([0.02, 0.98]))
        assert high - low < 0.12, name


def test_better_scores_at_the_crowded_lower_end_stand_for_better_probabilities():
    generator = np.random.default_rng(2)
    wrong, right = generator.uniform(0.0002, 0.006, 256), generator.uniform(0.99, 1, 256)
    these = observed(np.r_[wrong, right], np.arange(512) >= 256)
    ordered = apply(fit(these), np.array([0.0, 0.0002, 0.0005, 0.002, 0.005, 0.006]))
    assert (np.diff(ordered) > 0).all()


def test_inner_steps_have_their_own_map_where_they_differ():
    maps, measured = maps_of(VERIFIERS["final higher"])
    assert maps.inner_differs
    fields = calibration_fields(measured, maps)
    assert list(fields) == ["final", "inner", "final_auroc", "inner_auroc"]
    assert fields["final"][0][0] == 0
    assert fields["final"][-1][0] == 1
    value, low, high = fields["final_auroc"]
    assert low < value < high

    def alike(facts):
        return 0.4 + 0.2 * good(facts)

    maps, measured = maps_of(alike, labelled="both", steps=1)
    maps = calibrate(measured.final.these, measured.final.these)
    assert not maps.inner_differs
    assert "inner" not in calibration_fields(measured, maps)


def test_too_little_gives_no_map():
    for problems, n in ((10, 8), (30, 1)):
        maps, measured = maps_of(good, problems, n=n)
        assert maps.final is None
        assert maps.verdict.startswith("No map: it takes 20 right answers")
        assert calibration_fields(measured, maps) == {}
    assert calibrate(None).final is None


def test_probabilities_are_those_of_maps_that_have_not_seen_the_problem(monkeypatch):
    """Each map gives a probability of its own: who has which shows whose map it was."""
    taught = []

    def fitted(these):
        taught.append(set(these.problems.tolist()))
        share = len(taught) / 100
        return (0.0, share), (1.0, share)

    monkeypatch.setattr(calibrate_module, "fit", fitted)
    generator = np.random.default_rng(3)
    these = observed(generator.random(800), generator.random(800) < 0.5)
    mapped = calibrate_module._out_of_fold(these, these)
    for probability, problem in zip(mapped, these.problems, strict=True):
        assert problem not in taught[round(probability * 100) - 1]
    assert min(map(len, taught)) == 80


@pytest.mark.parametrize("labelled", ["steps", "both"])
def test_labelled_steps_give_maps_too(labelled):
    maps, measured = maps_of(VERIFIERS["squeezed"], labelled=labelled)
    assert maps.accepted
    assert measured.final.right + measured.final.wrong == measured.chains
