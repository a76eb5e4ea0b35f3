"""The search core under any order of events."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tts.orchestrator.search import (
    BeamSearch,
    BeamSearchConfig,
    Expand,
    Fate,
    Generated,
    SampleSearch,
    SampleSearchConfig,
    Score,
    Scored,
    Search,
    Stop,
    Thought,
    Work,
    node_seed,
)


def answer(work: Work, world: int) -> Generated | Scored:
    """What the engines say about a node: a function of the node and its seed alone."""
    rng = random.Random(f"{world}/{work.node}/{type(work).__name__}")
    if isinstance(work, Score):
        return Scored(work.node, rng.choice([0.0, 0.25, 0.5, 0.5, 0.50001, 1.0]))
    thoughts = []
    while True:
        stop = rng.choices([Stop.STEP, Stop.END, Stop.LENGTH], [6, 2, 1])[0]
        ids = tuple(rng.randrange(5) for _ in range(rng.randrange(4)))
        thoughts.append(Thought(ids, "".join(map(str, ids)) or " ", stop))
        if not work.whole or stop is not Stop.STEP or len(thoughts) > 6:
            return Generated(work.node, tuple(thoughts))


def drive(search: Search, world: int, order: random.Random | None) -> list[Work]:
    """Run a search to its end, in the order asked or shuffled with duplicates and late answers."""
    asked: list[Work] = []
    pending: list[Work] = []
    told: list[Generated | Scored] = []
    while True:
        wanted = search.ask()
        asked += wanted
        pending += wanted
        if not pending:
            break
        work = pending.pop(order.randrange(len(pending)) if order else 0)
        result = answer(work, world)
        search.tell(result)
        told.append(result)
        if order and order.random() < 0.3:
            search.tell(order.choice(told))
    for result in told:
        search.tell(result)
    assert search.ask() == []
    assert search.done
    return asked


beam_configs = st.builds(
    lambda keep, width, **rest: BeamSearchConfig(n=keep * width, beam_width=width, **rest),
    st.integers(1, 4),
    st.integers(1, 4),
    num_iterations=st.integers(1, 6),
    agg_strategy=st.sampled_from(["last", "min", "prod", "mean"]),
    filter_duplicates=st.booleans(),
    sort_completed=st.booleans(),
)
sample_configs = st.builds(
    SampleSearchConfig,
    n=st.integers(1, 8),
    scored=st.booleans(),
    agg_strategy=st.sampled_from(["last", "min", "prod", "mean"]),
)


def build(config: BeamSearchConfig | SampleSearchConfig) -> Search:
    seed = lambda node: node_seed(7, "p", node)  # noqa: E731
    if isinstance(config, BeamSearchConfig):
        return BeamSearch(config, seed)
    return SampleSearch(config, seed)


@settings(max_examples=300, deadline=None)
@given(st.one_of(beam_configs, sample_configs), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_tree_does_not_depend_on_the_order_of_events(config, world, shuffle):
    plain, shuffled = build(config), build(config)
    asked = drive(plain, world, None)
    asked_shuffled = drive(shuffled, world, random.Random(shuffle))
    assert plain.tree.digest() == shuffled.tree.digest()
    assert plain.result() == shuffled.result()
    assert {n.path: n.score for n in plain.tree} == {n.path: n.score for n in shuffled.tree}
    assert Counter(asked) == Counter(asked_shuffled)
    assert max(Counter(asked).values()) == 1, "work was asked twice"


@settings(max_examples=200, deadline=None)
@given(st.one_of(beam_configs, sample_configs), st.integers(0, 10**6))
def test_exactly_n_completions_come_out(config, world):
    search = build(config)
    drive(search, world, None)
    result = search.result()
    assert len(result.completions) == config.n
    assert len({done.node for done in result.completions}) == config.n
    completed = [node for node in search.tree if node.fate is Fate.COMPLETED]
    assert {node.path for node in completed} == {done.node for done in result.completions}
    assert not any(node.fate is Fate.OPEN for node in search.tree)


@settings(max_examples=200, deadline=None)
@given(beam_configs, st.integers(0, 10**6))
def test_beam_search_keeps_its_budget_and_its_best(config, world):
    search = build(config)
    asked = drive(search, world, None)
    expansions = [work for work in asked if isinstance(work, Expand)]
    by_depth = Counter(len(work.node) for work in expansions)
    assert set(by_depth.values()) == {config.n}
    assert len(by_depth) <= config.num_iterations
    for depth in by_depth:
        nodes = [node for node in search.tree if len(node.path) == depth]
        expanded = [node for node in nodes if node.fate is Fate.EXPANDED]
        assert len(expanded) <= config.n // config.beam_width
        pruned = [node for node in nodes if node.fate is Fate.PRUNED]
        if expanded and not config.filter_duplicates:
            scores = {
                node.path: search.tree.path_score(node.path, config.agg_strategy) for node in nodes
            }
            worst_kept = min(scores[node.path] for node in expanded)
            assert all(scores[node.path] <= worst_kept for node in pruned)
    assert len({work.seed for work in expansions}) == len(expansions)


def test_ties_are_broken_by_path_not_by_arrival():
    config = BeamSearchConfig(n=4, beam_width=4, num_iterations=2)
    search = build(config)
    first = search.ask()
    for work in reversed(first):
        search.tell(Generated(work.node, (Thought((1,), "x\n\n", Stop.STEP),)))
    for work in reversed(search.ask()):
        search.tell(Scored(work.node, 0.5 + work.node[0] * 1e-6))  # float noise
    assert {work.node[0] for work in search.ask()} == {0}


def test_a_score_is_locked_at_the_first_write():
    search = build(SampleSearchConfig(n=1))
    search.ask()
    search.tell(Generated((0,), (Thought((1,), "x", Stop.END),)))
    search.tell(Scored((0,), 0.25))
    search.tell(Scored((0,), 0.75))
    assert search.result().completions[0].score == 0.25


def test_whole_chains_become_one_node_per_step():
    search = build(SampleSearchConfig(n=1, agg_strategy="min"))
    search.ask()
    steps = (
        Thought((1,), "a\n\n", Stop.STEP),
        Thought((2,), "b\n\n", Stop.STEP),
        Thought((3,), "c", Stop.END),
    )
    search.tell(Generated((0,), steps))
    assert [work.node for work in search.ask()] == [(0,), (0, 0), (0, 0, 0)]
    for node, score in (((0,), 0.9), ((0, 0), 0.2), ((0, 0, 0), 0.8)):
        search.tell(Scored(node, score))
    (done,) = search.result().completions
    assert (done.text, done.score) == ("a\n\nb\n\nc", 0.2)


def test_a_score_that_is_no_probability_is_refused():
    search = build(SampleSearchConfig(n=1))
    search.ask()
    search.tell(Generated((0,), (Thought((1,), "x", Stop.END),)))
    for wrong in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match="within"):
            search.tell(Scored((0,), wrong))


def test_seeds_are_stable_and_distinct():
    assert node_seed(0, "p", (0,)) == 2606024652530248270
    seeds = {
        node_seed(run, problem, node)
        for run in (0, 1)
        for problem in ("p", "q")
        for node in ((0,), (1,), (0, 1), (0, 0, 1), (11,), (1, 1))
    }
    assert len(seeds) == 24
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"n": 10, "beam_width": 4}, "beam_width"),
        ({"beam_width": 0}, "beam_width"),
        ({"agg_strategy": "median"}, "agg_strategy"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"num_iterations": 0}, "num_iterations"),
        ({"width": 4}, "width"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, named):
    with pytest.raises(ValidationError, match=named):
        BeamSearchConfig(**parameters)
