"""The search core against the reference, on random trees."""

import dataclasses
from collections import Counter, deque
from functools import partial

import pytest
from hypothesis import given, settings
from tests.amounts import amount
from tests.search import reference
from tests.search.reference_run import (
    Call,
    GenerateCall,
    Outcome,
    Params,
    ScoreCall,
    Seed,
    World,
)
from tests.search.worlds import STRATEGIES, RandomWorld, cases

import tts.search as core

TREES = amount(560, 5000)
"""Random trees on which core and reference are compared, over all strategies."""

COMMON = ["n", "temperature", "top_p", "max_tokens", "agg_strategy"]
TREE = [*COMMON, "num_iterations", "finish"]
# Of each strategy: its search, its configuration, its parameters.
CORE = {
    "sample": ("SampleSearch", "SampleSearchConfig", [*COMMON, "scored"]),
    "adaptive_vote": (
        "AdaptiveVoteSearch",
        "AdaptiveVoteConfig",
        [*COMMON, "scored", "batch", "threshold"],
    ),
    "beam_search": (
        "BeamSearch",
        "BeamSearchConfig",
        [*TREE, "beam_width", "filter_duplicates", "sort_completed"],
    ),
    "dvts": ("DvtsSearch", "DvtsConfig", [*TREE, "beam_width"]),
    "rebase": (
        "RebaseSearch",
        "RebaseConfig",
        [*TREE, "softmax_temperature"],
    ),
    "particle_filtering": (
        "ParticleSearch",
        "ParticleConfig",
        [*TREE, "weight_temperature", "ess_threshold"],
    ),
    "mcts": (
        "MctsSearch",
        "MctsConfig",
        [*TREE, "width", "exploration", "parallel"],
    ),
}


def core_search(strategy: str, params: Params, seed: Seed, world: World) -> core.Search:
    """The core's search for the same parameters."""
    search_name, config_name, names = CORE[strategy]
    config = getattr(core, config_name)(**{name: getattr(params, name) for name in names})

    def answer_form(text: str) -> core.AnswerForm | None:
        form = world.answer_form(text)
        return core.AnswerForm(*form) if form else None

    stopping = [answer_form] if strategy == "adaptive_vote" else []
    return getattr(core, search_name)(config, seed, *stopping)


def run_core(search: core.Search, world: World) -> list[Call]:
    """Run the core's search to its end, answering in the order asked; what it asked for."""
    asked: list[Call] = []
    waiting: deque[core.Work] = deque()
    while not search.done:
        waiting += search.ask()
        assert waiting, "the search is not done and waits for nothing"
        work = waiting.popleft()
        if isinstance(work, core.Score):
            asked.append(ScoreCall(work.node))
            search.tell(core.Scored(work.node, world.score(work.node)))
        else:
            sampling = dataclasses.astuple(work.sampling)[:3]
            asked.append(GenerateCall(work.node, work.seed, *sampling, work.whole))
            thoughts = world.generate(work.node, work.seed, work.sampling.temperature, work.whole)
            search.tell(core.Generated(work.node, thoughts))
    return asked


PRUNED_EARLY = (None, "pruned")
"""Score and fate of a node that was pruned before it was scored: the reference scores all."""


def check(strategy: str, params: Params, world: World, seed: Seed) -> Outcome:
    """Core and reference agree on nodes, completions and calls; the reference's outcome."""
    search = core_search(strategy, params, seed, world)
    asked = run_core(search, world)
    expected = getattr(reference, strategy)(params, seed, world)

    nodes = {}
    for node in search.tree:
        nodes[node.path] = (node.thought, node.score, str(node.fate))
    unscored = {path for path, (_, score, fate) in nodes.items() if (score, fate) == PRUNED_EARLY}
    assert nodes == {
        path: (node.thought, None if path in unscored else node.score, str(node.fate))
        for path, node in expected.nodes.items()
    }
    needed = [
        call
        for call in expected.calls
        if not (isinstance(call, ScoreCall) and call.path in unscored)
    ]

    completions = [(done.node, done.text, done.score) for done in search.result().completions]
    assert completions == [(done.path, done.text, done.score) for done in expected.completions]

    assert Counter(needed) <= Counter(asked) <= Counter(expected.calls)
    return expected


# What the random trees of a strategy must have had among them for the comparison to mean much.
EDGES = {
    "sample": {"expanded"},
    "adaptive_vote": {"expanded", "stopped"},
    "beam_search": {"expanded", "pruned", "surplus"},
    "dvts": {"expanded", "pruned"},
    "rebase": {"expanded", "pruned"},
    "particle_filtering": {"expanded", "pruned", "copies"},
    "mcts": {"expanded", "pruned", "surplus"},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_core_agrees_with_the_reference(strategy: str) -> None:
    seen = set()

    @settings(max_examples=TREES // len(STRATEGIES), deadline=None)
    @given(cases(strategy))
    def compare(case: tuple[Params, RandomWorld]) -> None:
        params, world = case
        outcome = check(strategy, params, world, partial(core.node_seed, world.seed, "problem"))
        seen.update(str(node.fate) for node in outcome.nodes.values())
        paths = [completion.path for completion in outcome.completions]
        if len(paths) < params.n:
            seen.add("stopped")
        if len(set(paths)) < len(paths):
            seen.add("copies")

    compare()
    assert seen == EDGES[strategy] | {"completed"}
