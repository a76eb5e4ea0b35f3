"""Every strategy: one result whatever the order of events, and the rules that all keep."""

import random
import subprocess
import sys
from collections import Counter

import pytest
from examples.ab_mcts import AbMctsConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.amounts import amount
from tests.search.driving import (
    END,
    answer,
    beam_configs,
    build,
    candidates_per_depth,
    configs,
    drive,
    dvts_configs,
    grow,
    may_stop_early,
    tree_configs,
    worlds,
)

from tts.search import (
    AdaptiveVoteConfig,
    AutoConfig,
    BeamSearchConfig,
    Calibration,
    DvtsConfig,
    Expand,
    Fate,
    MctsConfig,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Score,
    Scored,
    Search,
    Work,
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


INTERLEAVINGS = amount(140, 1500)
"""Random trees, each under a random order of events, in the first test below."""


def outcome(search: Search):
    """All but the scores of pruned nodes, which are missing where nothing hung on them."""
    nodes = {
        node.path: (node.thought, None if node.fate is Fate.PRUNED else node.score, node.fate)
        for node in search.tree
    }
    return nodes, search.result().completions


def scores(search: Search, other: Search):
    """The pairs of scores of the nodes that are scored in both."""
    return [
        (node.score, other.tree[node.path].score)
        for node in search.tree
        if node.score is not None and other.tree[node.path].score is not None
    ]


def needed(asked: list[Work], search: Search) -> set[tuple[type, tuple[int, ...]]]:
    """What was asked for, without the scores of pruned nodes."""
    return {
        (type(work), work.node)
        for work in asked
        if isinstance(work, Expand) or search.tree[work.node].fate is not Fate.PRUNED
    }


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(configs, worlds, st.integers(0, 10**6), st.sampled_from([1, 0.6]))
def test_the_tree_does_not_depend_on_the_order_of_events(config, world, shuffle, best):
    """With a calibration, too, whose best probability is less than 1."""
    plain, shuffled = build(config), build(config)
    plain.tree.calibration = shuffled.tree.calibration = Calibration.of([(0, 0), (1, best)])
    asked = drive(plain, world)
    asked_shuffled = drive(shuffled, world, random.Random(shuffle))
    assert plain.tree.digest() == shuffled.tree.digest()
    assert outcome(plain) == outcome(shuffled)
    assert all(one == other for one, other in scores(plain, shuffled))
    for works in (asked, asked_shuffled):
        assert max(Counter(w.node for w in works if isinstance(w, Expand)).values()) == 1
        assert max(Counter(type(w).__name__ + str(w.node) for w in works).values()) == 1
    if not may_stop_early(config):
        assert needed(asked, plain) == needed(asked_shuffled, shuffled)


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(configs, worlds, st.integers(0, 10**6))
def test_a_search_does_without_a_score_only_if_it_said_that_it_might(config, world, shuffle):
    search = build(config)
    scores = [w for w in drive(search, world, random.Random(shuffle)) if isinstance(w, Score)]
    if not isinstance(config, BeamSearchConfig | DvtsConfig):
        assert not any(work.may_be_pruned for work in scores)
        assert search.hints.needs() == {}
    else:
        certain = [search.tree[work.node] for work in scores if not work.may_be_pruned]
        assert all(node.score is not None for node in certain if node.fate is Fate.PRUNED)


def drive_in_a_crowd(search: Search, world: int, order: random.Random):
    """Run a search to its end on a verifier that scores what may not be needed only if idle.

    Returns what the search called needed, and what it withdrew.
    """
    pending: list[Work] = []
    held: dict[tuple[int, ...], Score] = {}
    needed: list[tuple[int, ...]] = []
    withdrawn: list[tuple[int, ...]] = []
    while not search.done:
        for work in search.ask():
            if isinstance(work, Score) and work.may_be_pruned:
                held[work.node] = work
            else:
                pending.append(work)
        for node, need in search.hints.needs().items():
            if need:
                needed.append(node)
                pending.append(held.pop(node))
            else:
                withdrawn.append(node)
                held.pop(node, None)
                pending = [w for w in pending if not (isinstance(w, Score) and w.node == node)]
        if not pending:
            pending.append(held.pop(min(held)))
        search.tell(answer(pending.pop(order.randrange(len(pending))), world))
    assert search.hints.needs() == {}
    return needed, withdrawn


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(st.one_of(beam_configs, dvts_configs), worlds, st.integers(0, 10**6))
def test_needs_names_only_what_waits_and_the_tree_is_the_same(config, world, shuffle):
    """Taking a node from `held` fails if it was not asked for, is answered or was withdrawn."""
    plain, crowded = build(config), build(config)
    drive(plain, world)
    needed, withdrawn = drive_in_a_crowd(crowded, world, random.Random(shuffle))
    assert plain.tree.digest() == crowded.tree.digest()
    assert outcome(plain) == outcome(crowded)
    assert max(Counter(needed).values(), default=1) == 1
    if isinstance(config, DvtsConfig) and config.agg_strategy == "last":
        assert not set(needed) & set(withdrawn), "nothing could spare them"


def test_trees_are_the_same_in_another_process():
    """Whatever PYTHONHASHSEED is: nothing in the core depends on Python's own hash."""
    code = (
        "from tests.search.driving import build, drive\n"
        "from tts.strategies.catalog import STRATEGIES\n"
        "for strategy in STRATEGIES.values():\n"
        "    search = build(strategy.configure({}, context=4096)); drive(search, 5)\n"
        "    print(strategy.name, search.tree.digest())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == len(STRATEGIES)
