"""Random configurations of every strategy, and a loop that answers a search in any order."""

import random

from examples.ab_mcts import AbMctsConfig
from hypothesis import strategies as st

from tts.search import (
    AdaptiveVoteConfig,
    Advice,
    AutoConfig,
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Fate,
    Generated,
    MctsConfig,
    NodePath,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Score,
    Scored,
    Search,
    Stop,
    Thought,
    Work,
    node_seed,
)
from tts.strategies.catalog import new_search

AGGREGATIONS = st.sampled_from(["last", "min", "prod", "mean"])

ANSWERS = (r"\boxed{5}", r"\boxed{7}", r"\boxed{\frac{1}{2}}", r"\boxed{0.5}", "no answer")

step_parameters = {
    "num_iterations": st.integers(1, 5),
    "finish": st.sampled_from(["depth", "eos"]),
    "agg_strategy": AGGREGATIONS,
}


def widths(kind, **rest):
    """Configurations with n a multiple of beam_width."""
    return st.builds(
        lambda keep, width, **rest: kind(n=keep * width, beam_width=width, **rest),
        st.integers(1, 4),
        st.integers(1, 4),
        **step_parameters,
        **rest,
    )


beam_configs = widths(
    BeamSearchConfig, filter_duplicates=st.booleans(), sort_completed=st.booleans()
)

dvts_configs = widths(DvtsConfig)

rebase_configs = st.builds(
    RebaseConfig,
    n=st.integers(1, 9),
    softmax_temperature=st.sampled_from([1e-3, 0.2, 1.0, 50.0]),
    **step_parameters,
)

particle_configs = st.builds(
    ParticleConfig,
    n=st.integers(1, 9),
    weight_temperature=st.sampled_from([0.1, 1.0, 10.0]),
    ess_threshold=st.sampled_from([0.0, 0.5, 1.0]),
    **step_parameters,
)

sample_configs = st.builds(
    SampleSearchConfig,
    n=st.integers(1, 9),
    scored=st.booleans(),
    agg_strategy=AGGREGATIONS,
)

adaptive_configs = st.builds(
    AdaptiveVoteConfig,
    n=st.integers(1, 12),
    batch=st.integers(1, 5),
    threshold=st.sampled_from([0.5, 0.7, 0.8, 0.95, 1.0]),
    scored=st.booleans(),
    agg_strategy=AGGREGATIONS,
)

mcts_configs = st.builds(
    MctsConfig,
    n=st.integers(1, 9),
    width=st.integers(1, 4),
    exploration=st.sampled_from([0.0, 0.5, 1.0, 10.0]),
    parallel=st.integers(1, 5),
    **step_parameters,
)

ab_mcts_configs = st.builds(
    AbMctsConfig,
    n=st.integers(1, 12),
    parallel=st.integers(1, 5),
    agg_strategy=AGGREGATIONS,
)

tree_configs = st.one_of(beam_configs, dvts_configs, rebase_configs, particle_configs, mcts_configs)

auto_configs = st.builds(AutoConfig, n=st.integers(1, 8), agg_strategy=AGGREGATIONS)

advices = st.builds(
    Advice,
    method=st.sampled_from(["mcts", "rebase", "vote"]),
    votes=st.sampled_from([1, 2, 4, 8]),
    parallel=st.integers(1, 4),
    allowance=st.one_of(st.none(), st.integers(1, 60)),
    width=st.integers(1, 4),
)

configs = st.one_of(tree_configs, sample_configs, adaptive_configs, ab_mcts_configs, auto_configs)


def candidates_per_depth(config) -> int:
    """How many candidates may be opened at one depth of the tree, at most."""
    return config.n * config.width if isinstance(config, MctsConfig) else config.n


worlds = st.integers(0, 10**9)

STEP = (Thought((1,), "a\n\n", Stop.STEP),)
END = (Thought((1,), "a", Stop.END),)


def answer(work: Work, world: int) -> Generated | Scored:
    """What the engines say about a node: a function of the node and its seed alone.

    In every other world the verifier writes.
    """
    rng = random.Random(f"{world}/{work.node}/{type(work).__name__}")
    if isinstance(work, Score):
        score = rng.choice([0.0, 0.25, 0.5, 0.5, 0.50001, 0.9, 1.0, 1.0])
        return Scored(work.node, score, rng.randrange(6) if world % 2 else 0)
    thoughts = []
    while True:
        stop = rng.choices([Stop.STEP, Stop.END, Stop.LENGTH], [6, 2, 1])[0]
        ids = tuple(rng.randrange(3) for _ in range(rng.randrange(3)))
        text = "".join(map(str, ids)) or " "
        if stop is not Stop.STEP:
            text += rng.choice(ANSWERS)
        thoughts.append(Thought(ids, text, stop))
        if not work.whole or stop is not Stop.STEP or len(thoughts) > 6:
            return Generated(work.node, tuple(thoughts))


def critiques(tree, world: int) -> int:
    """How many tokens the verifier has written for the scores in a tree."""
    scored = [Score(node.path) for node in tree if node.score is not None]
    return sum(answer(work, world).tokens for work in scored)


def may_stop_early(config) -> bool:
    """Whether fewer than n completions may come out."""
    return getattr(config, "threshold", 1.0) < 1 or isinstance(config, AutoConfig)


def build(config) -> Search:
    return new_search(config, lambda node: node_seed(7, "p", node))


def grow(search: Search, scores=(), thoughts=STEP) -> list[NodePath]:
    """Answer what is asked until nothing more is; scores are those given, others stay away.

    `scores` by node, or of the first children; `thoughts` are those of all, or by node. Returns the
    nodes of what was asked for.
    """
    asked = []
    scores = scores if isinstance(scores, dict) else {(i,): each for i, each in enumerate(scores)}
    while works := search.ask():
        for work in works:
            asked.append(work.node)
            if isinstance(work, Expand):
                said = thoughts.get(work.node, STEP) if isinstance(thoughts, dict) else thoughts
                search.tell(Generated(work.node, said))
            elif work.node in scores:
                search.tell(Scored(work.node, scores[work.node]))
    return asked


def drive(search: Search, world: int, order: random.Random | None = None) -> list[Work]:
    """Run a search to its end and return what it asked for.

    Without `order` in the order asked. With it results come shuffled; some are told twice, at once
    or much later; some requests are cancelled and sent again; and some answers arrive for nodes
    that were never asked for (as speculation beyond a node's end, or for a node long pruned).
    """
    asked: list[Work] = []
    pending: list[Work] = []
    told: list[Generated | Scored] = []
    while True:
        wanted = search.ask()
        for work in wanted:
            assert search.tree[work.node].fate in (Fate.OPEN, Fate.EXPANDED, Fate.COMPLETED)
            for depth in range(1, len(work.node)):
                assert search.tree[work.node[:depth]].fate is not Fate.PRUNED, "work for a pruned"
        asked += wanted
        pending += wanted
        if not pending or search.done:
            break
        work = pending.pop(order.randrange(len(pending)) if order else 0)
        if order and order.random() < 0.2:
            pending.append(work)  # cancelled on the engine, and sent again
            continue
        result = answer(work, world)
        search.tell(result)
        told.append(result)
        if order and order.random() < 0.3:
            search.tell(order.choice(told))
        if order and order.random() < 0.2:
            stray = (*work.node, order.randrange(3)) if order.random() < 0.7 else (77,)
            if stray not in search.tree:
                search.tell(answer(Expand(stray, 0, None, order.random() < 0.5), world))
                search.tell(Scored(stray, 0.125))
    for result in told:
        search.tell(result)
    for work in pending:
        search.tell(answer(work, world))  # late: the search was done without it
    assert search.ask() == []
    assert search.done
    return asked
