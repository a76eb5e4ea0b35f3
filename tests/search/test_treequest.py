"""AB-MCTS makes the choices that its authors' own code makes, and draws as it does."""

import random
from importlib.util import find_spec

import pytest
from examples.ab_mcts import Branching, Posterior, back_up, student_t, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

pytestmark = pytest.mark.skipif(find_spec("treequest") is None, reason="treequest is not installed")


def shared_draw(world, trial, location, scale, freedom):
    """A draw that depends on what is believed alone, so that both sides may draw in any order."""
    rng = random.Random(f"{world}/{trial}/{location:.9f}/{scale:.9f}/{freedom:.1f}")
    return location + scale * student_t(freedom, 1 - rng.random(), rng.random())


def theirs(world, value_of, trials):
    """The nodes below which treequest generates, trial by trial."""
    from treequest import ABMCTSA
    from treequest.algos.ab_mcts_a.prob_state import ProbabilisticDist

    algorithm = ABMCTSA()
    state = algorithm.init_tree()
    parents = []

    def draw(belief):
        params = belief.params
        scale = (params["tau_square"] / params["kappa"]) ** 0.5
        return shared_draw(world, len(parents), params["m"], scale, params["nu"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProbabilisticDist, "draw_sample", draw)
        for _ in range(trials):
            state, trial = algorithm.ask(state, ["generate"])
            above = state.tree.get_node(trial.node_to_expand)
            parent = above.state or ()
            path = (*parent, len(above.children))
            parents.append(parent)
            state = algorithm.tell(state, trial.trial_id, (path, value_of(path)))
            # here the chain goes on below its new step, which was wider there, too
            new = state.tree.get_node(len(parents) - 1)
            beliefs = state.thompson_states.get_or_create(new, ["generate"])
            beliefs.update_action_reward("generate", value_of(path))
    return parents


def ours(world, value_of, trials):
    root = Branching(())
    parents = []

    def draw(belief):
        location, scale, freedom = belief.location, belief.scale, belief.freedom
        return shared_draw(world, len(parents), location, scale, freedom)

    for _ in range(trials):
        way = walk(root, draw)
        parents.append(way[-1].path)
        path = (*parents[-1], len(way[-1].children))
        back_up(way, [path], value_of(path))
    return parents


@settings(max_examples=amount(15, 60), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([0.1, 0.5, 0.9]))
def test_the_same_nodes_are_chosen_trial_by_trial(world, mean):
    def value_of(path):
        return random.Random(f"{world}/{path}").betavariate(4 * mean, 4 - 4 * mean)

    parents = ours(world, value_of, 40)
    assert parents == theirs(world, value_of, 40)
    assert len(set(parents)) > 1, "it has gone deeper"


@pytest.mark.parametrize("values", [[], [0.5], [0.9, 0.95, 1.0], [0.0, 1.0] * 8])
def test_draws_have_the_same_distribution(values):
    import numpy as np
    from scipy.stats import ks_2samp
    from treequest.algos.ab_mcts_a.prob_state import ProbabilisticDist

    mine, yours = Posterior(), ProbabilisticDist()
    for value in values:
        mine.see(value)
        yours.tell_observation(value)
    rng = random.Random(1)
    drawn = [mine.draw(1 - rng.random(), rng.random()) for _ in range(4000)]
    np.random.seed(1)
    assert ks_2samp(drawn, [yours.draw_sample() for _ in range(4000)]).pvalue > 0.01
