"""What holds for the tree of every strategy."""

import pytest
from examples.ab_mcts import AbMctsConfig
from hypothesis import given, settings
from pydantic import ValidationError
from tests.amounts import amount
from tests.search.driving import (
    END,
    build,
    candidates_per_depth,
    configs,
    drive,
    grow,
    may_stop_early,
    tree_configs,
    worlds,
)

from tts.search import (
    AdaptiveVoteConfig,
    AutoConfig,
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Fate,
    MctsConfig,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Score,
    Scored,
)
from tts.strategies.catalog import STRATEGIES


@settings(max_examples=amount(75, 300), deadline=None)
@given(configs, worlds)
def test_exactly_n_completions_come_out(config, world):
    search = build(config)
    assert search.result() is None
    drive(search, world)
    result = search.result()
    assert result is search.result(), "it is made once"
    assert result.tree is search.tree
    nodes = [done.node for done in result.completions]
    if may_stop_early(config):
        assert 0 < len(nodes) <= config.n
    else:
        assert len(nodes) == config.n
    if not isinstance(config, ParticleConfig):  # whose particles may be drawn more than once
        assert len(set(nodes)) == len(nodes)
    completed = {node.path for node in search.tree if node.fate is Fate.COMPLETED}
    assert completed == set(nodes)
    assert not any(node.fate is Fate.OPEN for node in search.tree)
    scores = [node.score for node in search.tree if node.score is not None]
    assert scores == pytest.approx([round(score, 4) for score in scores])
    if getattr(config, "scored", True):
        ranks = [
            (-done.score, -search.tree[done.node].score, done.node) for done in result.completions
        ]
        assert ranks == sorted(ranks)


@settings(max_examples=amount(75, 300), deadline=None)
@given(tree_configs, worlds)
def test_the_budget_of_samples_is_kept(config, world):
    """At most n an iteration; under MCTS n times width, a node of each depth by each simulation."""
    search = build(config)
    expansions = [work for work in drive(search, world) if isinstance(work, Expand)]
    assert len({work.seed for work in expansions}) == len(expansions)
    assert len(expansions) <= config.num_iterations * candidates_per_depth(config)
    depths = [len(work.node) for work in expansions]
    assert max(depths) <= config.num_iterations
    if config.finish == "depth":
        assert not any(work.whole for work in expansions)


def scores_steps(config, world) -> bool:
    """Whether a search asks for the score of a step that is not its chain's last."""
    search = build(config)
    scored = {work.node for work in drive(search, world) if isinstance(work, Score)}
    return not scored.isdisjoint(node.path[:-1] for node in search.tree)


@settings(max_examples=amount(75, 300), deadline=None)
@given(configs, worlds)
def test_what_scores_answers_alone_asks_for_no_score_of_a_step(config, world):
    assert config.scores_steps or not scores_steps(config, world)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_built_in_strategy_says_whether_it_asks_for_scores_of_steps(name):
    config = STRATEGIES[name].configure({}, context=4096)
    assert config.scores_steps == any(scores_steps(config, world) for world in range(5))


@pytest.mark.parametrize("config", [SampleSearchConfig(n=1), BeamSearchConfig(n=1, beam_width=1)])
def test_a_score_is_a_probability_and_locked_at_the_first_write(config):
    search, wrong = build(config), build(config)
    for each in (search, wrong):
        grow(each, thoughts=END)
    for score in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match="within"):
            wrong.tell(Scored((0,), score))
    search.tell(Scored((0,), 0.25))
    search.tell(Scored((0,), 0.75))
    assert search.result().completions[0].score == 0.25


PINNED = {
    SampleSearchConfig(n=4): "5032e8a7390cd243",
    BeamSearchConfig(n=8, beam_width=4, num_iterations=4): "cdc4e992b2a02085",
    DvtsConfig(n=6, beam_width=3, num_iterations=4, finish="eos"): "95f2a698a9cc4652",
    RebaseConfig(n=6, num_iterations=4): "55fe0f0c2848d437",
    ParticleConfig(n=6, num_iterations=4): "381ad1b9280746b6",
    MctsConfig(n=8, width=3, num_iterations=5): "f17c7473f2d6f401",
    AbMctsConfig(n=12, parallel=3): "233e577276d13488",
    AutoConfig(n=6): "7e0f764603dbfee3",
}
"""Digests of trees in world 5: runs are compared by them. Those of MCTS and auto change in 0.3."""


@pytest.mark.parametrize("config", PINNED, ids=lambda config: type(config).__name__)
def test_trees_are_those_of_earlier_versions(config):
    search = build(config)
    drive(search, 5)
    assert search.result().tree.digest()[:16] == PINNED[config]


@pytest.mark.parametrize(
    ("config", "name", "allowed", "refused"),
    [
        (SampleSearchConfig, "n", [1], [0]),
        (SampleSearchConfig, "temperature", [0, 10], [-0.01, 10.01]),
        (SampleSearchConfig, "top_p", [0.01, 1], [0, 1.01]),
        (SampleSearchConfig, "max_tokens", [1], [0]),
        (BeamSearchConfig, "num_iterations", [1], [0]),
        (BeamSearchConfig, "beam_width", [1, 16], [0, 3, 32]),
        (DvtsConfig, "beam_width", [1, 16], [0, 3, 32]),
        (RebaseConfig, "softmax_temperature", [1e-3, 1e3], [0.9e-3, 1000.1]),
        (ParticleConfig, "weight_temperature", [1e-3, 1e3], [0.9e-3, 1000.1]),
        (ParticleConfig, "ess_threshold", [0, 1], [-0.01, 1.01]),
        (MctsConfig, "width", [1, 1000], [0, 1001]),
        (MctsConfig, "exploration", [0, 1e3], [-0.01, 1000.1]),
        (MctsConfig, "parallel", [1, 100], [0]),
        (AbMctsConfig, "parallel", [1, 100], [0]),
    ],
)
def test_parameters_are_refused_beyond_their_bounds(config, name, allowed, refused):
    for value in allowed:
        assert getattr(config(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValidationError, match=name):
            config(**{name: value})


def test_defaults_are_those_of_the_documentation():
    sampling = {"n": 16, "temperature": 0.8, "top_p": 1.0, "max_tokens": 2048}
    sampling |= {"top_k": 0, "min_p": 0.0}
    form = {"answer_regex": None, "answer_schema": None, "thinking_budget": None}
    common = sampling | form | {"agg_strategy": "last", "scores": "calibrated"}
    steps = {"num_iterations": 40, "finish": "depth"}
    beams = {"beam_width": 4, "filter_duplicates": False, "sort_completed": False}
    for config, own in (
        (SampleSearchConfig, {"scored": True}),
        (DvtsConfig, steps | {"beam_width": 4}),
        (RebaseConfig, steps | {"softmax_temperature": 0.2}),
        (ParticleConfig, steps | {"weight_temperature": 1.0, "ess_threshold": 0.5}),
        (MctsConfig, steps | {"width": 16, "exploration": 0.2, "parallel": 4}),
        (BeamSearchConfig, steps | beams),
        (AdaptiveVoteConfig, {"scored": True, "batch": 4, "threshold": 0.95}),
        (AutoConfig, {"n": 256}),
    ):
        assert config().model_dump() == common | own
