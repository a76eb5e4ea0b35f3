"""Particle filtering: how particles are drawn."""

from hypothesis import given
from hypothesis import strategies as st

from tts.search.particle_filtering import effective_sample_size, systematic


@given(st.lists(st.floats(1e-4, 1), min_size=1, max_size=30), st.floats(0, 1, exclude_max=True))
def test_systematic_draws_differ_from_their_expectation_by_less_than_one(weights, point):
    weights = [weight / sum(weights) for weight in weights]
    drawn = systematic(weights, point)
    n = len(weights)
    assert sum(drawn) == n
    assert all(abs(k - n * w) < 1 + 1e-6 for k, w in zip(drawn, weights, strict=True))
    assert 1 <= effective_sample_size(weights) <= n + 1e-6


def test_equal_particles_are_all_kept():
    assert effective_sample_size([1 / 7] * 7) == 7
    assert systematic([1 / 7] * 7, 0.5) == [1] * 7
