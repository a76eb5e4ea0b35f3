"""Every strategy's search core under any order of events."""

import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.build.errors import ConfigError
from tts.search import (
    AnswerForm,
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Fate,
    Generated,
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
from tts.search.particle_filtering import effective_sample_size, systematic
from tts.search.rebase import share_out
from tts.strategies.catalog import STRATEGIES, find_strategy, new_search

INTERLEAVINGS = 1500
"""Random trees, each under a random order of events, in the first test below."""

AGGREGATIONS = st.sampled_from(["last", "min", "prod", "mean"])
ANSWERS = (r"\boxed{5}", r"\boxed{7}", r"\boxed{\frac{1}{2}}", r"\boxed{0.5}", "no answer")
step_parameters = {
    "num_iterations": st.integers(1, 5),
    "finish": st.sampled_from(["depth", "eos"]),
    "granularity": st.sampled_from([1, 1, 2, 3]),
    "lookahead": st.sampled_from([0, 0, 1, 2]),
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


beam_configs = st.one_of(
    widths(BeamSearchConfig, filter_duplicates=st.booleans(), sort_completed=st.booleans()),
    widths(BeamSearchConfig, early_stop=st.just(True)),
)
dvts_configs = widths(DvtsConfig, early_stop=st.booleans())
rebase_configs = st.builds(
    RebaseConfig,
    n=st.integers(1, 9),
    softmax_temperature=st.sampled_from([1e-3, 0.2, 1.0, 50.0]),
    early_stop=st.booleans(),
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
    early_stop=st.booleans(),
)
tree_configs = st.one_of(beam_configs, dvts_configs, rebase_configs, particle_configs)
configs = st.one_of(tree_configs, sample_configs)
worlds = st.integers(0, 10**9)


def answer(work: Work, world: int) -> Generated | Scored:
    """What the engines say about a node: a function of the node and its seed alone."""
    rng = random.Random(f"{world}/{work.node}/{type(work).__name__}")
    if isinstance(work, Score):
        return Scored(work.node, rng.choice([0.0, 0.25, 0.5, 0.5, 0.50001, 0.9, 1.0, 1.0]))
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


def build(config) -> Search:
    return new_search(config, lambda node: node_seed(7, "p", node))


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
            assert search.tree[work.node].fate in (Fate.OPEN, Fate.EXPANDED, *SETTLED_BY_ASKING)
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


SETTLED_BY_ASKING = (Fate.LOOKAHEAD, Fate.COMPLETED)
"""Fates that a node may have when work on it is asked for, besides open and expanded."""


def outcome(search: Search):
    """Everything but the scores of pruned nodes, which are missing where nothing hung on them."""
    nodes = {
        node.path: (node.thought, None if node.fate is Fate.PRUNED else node.score, node.fate)
        for node in search.tree
        if min(node.path) >= 0
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
    """What was asked for, without the scores of pruned nodes (and of look-ahead below them)."""
    return {
        (type(work), work.node)
        for work in asked
        if isinstance(work, Expand)
        or search.tree[tuple(i for i in work.node if i >= 0)].fate is not Fate.PRUNED
    }


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(configs, worlds, st.integers(0, 10**6))
def test_the_tree_does_not_depend_on_the_order_of_events(config, world, shuffle):
    plain, shuffled = build(config), build(config)
    asked = drive(plain, world)
    asked_shuffled = drive(shuffled, world, random.Random(shuffle))
    assert plain.tree.digest() == shuffled.tree.digest()
    assert outcome(plain) == outcome(shuffled)
    assert all(one == other for one, other in scores(plain, shuffled))
    for works in (asked, asked_shuffled):
        assert max(Counter(w.node for w in works if isinstance(w, Expand)).values()) == 1
        assert max(Counter(type(w).__name__ + str(w.node) for w in works).values()) == 1
    if not getattr(config, "early_stop", False):
        assert needed(asked, plain) == needed(asked_shuffled, shuffled)


@settings(max_examples=300, deadline=None)
@given(configs, worlds)
def test_exactly_n_completions_come_out(config, world):
    search = build(config)
    drive(search, world)
    completions = search.result().completions
    nodes = [done.node for done in completions]
    if getattr(config, "early_stop", False):
        assert 0 < len(completions) <= config.n
    else:
        assert len(completions) == config.n
    if not isinstance(config, ParticleConfig):  # whose particles may be drawn more than once
        assert len(set(nodes)) == len(nodes)
    completed = {node.path for node in search.tree if node.fate is Fate.COMPLETED}
    assert completed == set(nodes)
    assert not any(node.fate is Fate.OPEN for node in search.tree)
    if getattr(config, "scored", True):
        ranks = [(-done.score, done.node) for done in completions]
        assert ranks == sorted(ranks)


@settings(max_examples=300, deadline=None)
@given(tree_configs, worlds)
def test_the_budget_of_samples_is_kept(config, world):
    """At most n candidates an iteration, of at most granularity steps and lookahead steps each."""
    search = build(config)
    expansions = [work for work in drive(search, world) if isinstance(work, Expand)]
    assert len({work.seed for work in expansions}) == len(expansions)
    greedy = [work for work in expansions if work.node[-1] == -1]
    assert all(work.sampling.temperature == 0 for work in greedy)
    per_iteration = config.n * (config.granularity + config.lookahead)
    assert len(expansions) <= config.num_iterations * per_iteration
    deepest = max(sum(index >= 0 for index in work.node) for work in expansions)
    assert deepest <= config.num_iterations * config.granularity
    whole = {len(work.node) for work in expansions if work.whole}
    assert not whole or config.finish == "eos"
    scored = [node for node in search.tree if node.score is not None]
    assert all(node.score == pytest.approx(round(node.score, 4)) for node in scored)


@settings(max_examples=200, deadline=None)
@given(beam_configs, worlds)
def test_beam_search_keeps_its_best(config, world):
    if config.granularity > 1 or config.finish == "eos" or config.filter_duplicates:
        return
    search = build(config)
    drive(search, world)
    for depth in range(1, config.num_iterations + 1):
        nodes = [node for node in search.tree if len(node.path) == depth and min(node.path) >= 0]
        expanded = [node for node in nodes if node.fate is Fate.EXPANDED]
        assert len(expanded) <= config.n // config.beam_width
        for node in nodes:  # one that was pruned without a score would have had this one
            search.tree.lock_score(node.path, answer(Score(node.path), world).score)
        scores = {n.path: search.tree.path_score(n.path, config.agg_strategy) for n in nodes}
        if expanded:
            worst_kept = min(scores[node.path] for node in expanded)
            pruned = [node for node in nodes if node.fate is Fate.PRUNED]
            assert all(scores[node.path] <= worst_kept for node in pruned)


@settings(max_examples=200, deadline=None)
@given(st.one_of(dvts_configs, sample_configs, beam_configs, rebase_configs), worlds)
def test_an_early_stop_cannot_change_the_vote(config, world):
    """Votes by the forms of the answers, as the search compares them while it runs."""
    if getattr(config, "sort_completed", False):
        return
    full, early = (build(config.model_copy(update={"early_stop": on})) for on in (False, True))
    drive(full, world)
    drive(early, world)
    full_vote, lead = _vote(full)
    if len(early.result().completions) < config.n:
        assert _vote(early)[0] == full_vote
        assert lead > 0


def _vote(search):
    from tts.grading.votes import answer_form

    weights = Counter()
    for done in search.result().completions:
        if form := answer_form(done.text):
            weights[form] += 1.0 if done.score is None else done.score
    ranked = weights.most_common(2) + [(None, 0.0)] * 2
    return ranked[0][0], ranked[0][1] - ranked[1][1]


def test_an_early_stop_saves_chains_that_cannot_matter():
    config = SampleSearchConfig(n=9, scored=False, early_stop=True)
    search = build(config)
    search.ask()
    same = (Thought((1,), r"\boxed{5}", Stop.END),)
    for chain in (8, 7, 4, 3, 2, 1):
        search.tell(Generated((chain,), same))
    assert not search.done, "chain 0 is missing: its answer must not depend on who came first"
    search.tell(Generated((0,), same))
    assert search.done
    assert [done.node for done in search.result().completions] == [(i,) for i in range(5)]
    assert len(search.tree) == 5


def test_forms_that_might_be_equal_do_not_stop_a_search():
    r"""2 and \frac{4}{2} may be one answer: together they could beat 5."""
    config = SampleSearchConfig(n=8, scored=False, early_stop=True)
    texts = [r"\boxed{5}"] * 4 + [r"\boxed{\frac{4}{2}}", r"\boxed{2}"]
    search = build(config)
    search.ask()
    for chain, text in enumerate(texts):
        search.tell(Generated((chain,), (Thought((1,), text, Stop.END),)))
    assert not search.done
    search.tell(Generated((6,), (Thought((1,), r"\boxed{5}", Stop.END),)))
    assert search.done


def test_subtrees_of_dvts_do_not_wait_for_one_another():
    config = DvtsConfig(n=8, beam_width=2, num_iterations=3)
    search = build(config)
    asks = search.ask()
    assert [work.node for work in asks] == [(child,) for child in range(8)]
    for child in (4, 5):
        search.tell(Generated((child,), (Thought((1,), "x\n\n", Stop.STEP),)))
    assert [work.node for work in search.ask()] == [(4,), (5,)]
    search.tell(Scored((5,), 0.75))
    search.tell(Scored((4,), 0.25))
    assert [work.node for work in search.ask()] == [(5, 0), (5, 1)]


def test_a_candidate_of_two_steps_is_scored_once():
    search = build(BeamSearchConfig(n=1, beam_width=1, granularity=2, num_iterations=2))
    (first,) = search.ask()
    search.tell(Generated(first.node, (Thought((1,), "a\n\n", Stop.STEP),)))
    (second,) = search.ask()
    assert (type(second), second.node) == (Expand, (0, 0))
    search.tell(Generated(second.node, (Thought((2,), "b\n\n", Stop.STEP),)))
    assert [(type(w), w.node) for w in search.ask()] == [(Score, (0, 0))]
    search.tell(Scored((0, 0), 0.5))
    assert [work.node for work in search.ask()] == [(0, 0, 0)]


def test_a_look_ahead_is_greedy_and_its_score_counts_for_the_step():
    search = build(BeamSearchConfig(n=2, beam_width=2, lookahead=2, num_iterations=2))
    for work in search.ask():
        search.tell(Generated(work.node, (Thought((1,), "a\n\n", Stop.STEP),)))
    ahead = search.ask()
    assert [(work.node, work.sampling.temperature) for work in ahead] == [
        ((0, -1), 0),
        ((1, -1), 0),
    ]
    search.tell(Generated((0, -1), (Thought((2,), "b", Stop.END),)))
    search.tell(Generated((1, -1), (Thought((2,), "b\n\n", Stop.STEP),)))
    assert [work.node for work in search.ask()] == [(0, -1), (1, -1, -1)]
    search.tell(Generated((1, -1, -1), (Thought((2,), "c\n\n", Stop.STEP),)))
    assert [(type(w), w.node) for w in search.ask()] == [(Score, (1, -1, -1))]
    search.tell(Scored((0, -1), 0.25))
    search.tell(Scored((1, -1, -1), 0.75))
    assert search.tree[1,].score == 0.75
    assert search.tree[1,].fate is Fate.EXPANDED
    assert search.tree[0,].fate is Fate.PRUNED
    last = search.ask()
    assert [work.node for work in last] == [(1, 0), (1, 1)]
    for work in last:
        search.tell(Generated(work.node, (Thought((1,), "d\n\n", Stop.STEP),)))
    asked = [(type(work), work.node) for work in search.ask()]
    assert asked == [(Score, (1, 0)), (Score, (1, 1))], "no look-ahead in the last iteration"


def test_finishing_to_the_end_of_the_sequence():
    search = build(BeamSearchConfig(n=1, beam_width=1, finish="eos", num_iterations=2))
    (first,) = search.ask()
    assert not first.whole
    search.tell(Generated((0,), (Thought((1,), "a\n\n", Stop.STEP),)))
    search.ask()
    search.tell(Scored((0,), 0.5))
    (last,) = search.ask()
    assert last.whole
    tail = (Thought((2,), "b\n\n", Stop.STEP), Thought((3,), "c", Stop.END))
    search.tell(Generated(last.node, tail))
    assert [(type(work), work.node) for work in search.ask()] == [(Score, (0, 0, 0))]
    search.tell(Scored((0, 0, 0), 0.9))
    (done,) = search.result().completions
    assert (done.node, done.text, done.score) == ((0, 0, 0), "a\n\nb\n\nc", 0.9)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.integers(0, 64),
    st.floats(1e-3, 1e3),
)
def test_shares_add_up_to_the_budget_and_follow_the_rank(scores, budget, temperature):
    scores.sort(reverse=True)
    shares = share_out(scores, budget, temperature)
    assert sum(shares) == budget
    assert min(shares) >= 0
    assert max(shares) == shares[0]


def test_shares_worked_by_hand():
    # e^0 : e^-1 : e^-2 = 1 : 0.368 : 0.135; 8 * 0.665 -> 6, then 2 * 0.731 -> 2, then none
    assert share_out([0.6, 0.4, 0.2], 8, 0.2) == [6, 2, 0]
    assert share_out([0.5] * 4, 8, 0.2) == [2, 2, 2, 2], "float noise must not give one a third"


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


def test_ties_are_broken_by_path_not_by_arrival():
    search = build(BeamSearchConfig(n=4, beam_width=4, num_iterations=2))
    first = search.ask()
    for work in reversed(first):
        search.tell(Generated(work.node, (Thought((1,), "x\n\n", Stop.STEP),)))
    for work in reversed(search.ask()):
        search.tell(Scored(work.node, 0.5 + work.node[0] * 1e-6))  # float noise
    assert {work.node[0] for work in search.ask()} == {0}


@pytest.mark.parametrize("config", [SampleSearchConfig(n=1), BeamSearchConfig(n=1, beam_width=1)])
def test_a_score_is_locked_at_the_first_write(config):
    search = build(config)
    search.ask()
    search.tell(Generated((0,), (Thought((1,), "x", Stop.END),)))
    search.ask()
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


@pytest.mark.parametrize("config", [SampleSearchConfig(n=1), BeamSearchConfig(n=1, beam_width=1)])
def test_a_score_that_is_no_probability_is_refused(config):
    search = build(config)
    search.ask()
    search.tell(Generated((0,), (Thought((1,), "x", Stop.END),)))
    search.ask()
    for wrong in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match="within"):
            search.tell(Scored((0,), wrong))


def test_seeds_are_stable_and_distinct():
    assert node_seed(0, "p", (0,)) == 2606024652530248270
    seeds = {
        node_seed(run, problem, node)
        for run in (0, 1)
        for problem in ("p", "q")
        for node in ((0,), (1,), (0, 1), (0, 0, 1), (11,), (1, 1), (-1, 1), (0, -1))
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_trees_are_the_same_in_another_process():
    """Whatever PYTHONHASHSEED is: nothing in the core depends on Python's own hash."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_search import *\n"
        "for strategy in STRATEGIES.values():\n"
        "    search = build(strategy.configure({}, context=4096)); drive(search, 5)\n"
        "    print(strategy.name, search.tree.digest())\n"
    )
    here = __file__.rpartition("/")[0]
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, here],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == len(STRATEGIES)


@pytest.mark.parametrize(
    ("strategy", "parameters", "named"),
    [
        ("beam-search", {"n": 10, "beam_width": 4}, "beam_width"),
        ("dvts", {"n": 10, "beam_width": 4}, "beam_width"),
        ("dvts", {"n": 2, "beam_width": 4}, "beam_width"),
        ("beam-search", {"beam_width": 0}, "beam_width"),
        ("dvts", {"beam_width": 0}, "beam_width"),
        ("rebase", {"n": 0}, "n = 0"),
        ("beam-search", {"agg_strategy": "median"}, "agg_strategy"),
        ("particle-filtering", {"agg_strategy": "median"}, "agg_strategy"),
        ("best-of-n", {"agg_strategy": "median"}, "agg_strategy"),
        ("beam-search", {"temperature": float("nan")}, "temperature"),
        ("beam-search", {"top_p": 0}, "top_p"),
        ("beam-search", {"num_iterations": 0}, "num_iterations"),
        ("beam-search", {"granularity": 0}, "granularity"),
        ("beam-search", {"lookahead": -1}, "lookahead"),
        ("beam-search", {"finish": "never"}, "finish"),
        ("beam-search", {"width": 4}, "width"),
        ("beam-search", {"sort_completed": True, "early_stop": True}, "sort_completed"),
        ("rebase", {"softmax_temperature": 0}, "softmax_temperature"),
        ("particle-filtering", {"ess_threshold": 1.5}, "ess_threshold"),
        ("particle-filtering", {"early_stop": True}, "early_stop"),
        ("best-of-n", {"early_stop": True}, "early_stop"),
        ("beam-search", {"max_tokens": 5000}, "max_tokens"),
    ],
)
def test_bad_parameters_are_refused_by_name(strategy, parameters, named):
    with pytest.raises(ConfigError, match=named):
        find_strategy(strategy).configure(parameters, context=4096)


def test_early_stop_without_a_reader_of_answers_is_a_mistake():
    from tts.search import BeamSearch

    with pytest.raises(ValueError, match="answer_of"):
        BeamSearch(BeamSearchConfig(early_stop=True), lambda _: 0)
    assert AnswerForm("5", True) != AnswerForm("5", False)


@settings(max_examples=500, deadline=None)
@given(tree_configs, worlds, st.integers(0, 10**6))
def test_what_is_foreseen_is_what_will_be_asked(config, world, shuffle):
    """Guesses are exact, no more than could be asked for, and ruled out for good or not at all."""
    order = random.Random(shuffle)
    search = build(config)
    asked_for = {w.node: w for w in drive(build(config), world) if isinstance(w, Expand)}
    answered: dict[tuple[int, ...], tuple[Thought, ...]] = {}
    ruled_out: set[tuple[int, ...]] = set()
    foreseen: dict[tuple[int, ...], Expand] = {}
    pending: list[Work] = []
    while not search.done:
        pending += search.ask()
        levels = Counter()
        last = (0, 0.0)
        for guess in search.foresee(answered):
            node = guess.work.node
            assert node not in search.tree
            assert node not in answered
            assert 0.0 <= guess.chance <= 1.0
            assert last <= (guess.level, -guess.chance), "shallow first, then by chance"
            last = (guess.level, -guess.chance)
            levels[guess.level] += 1
            foreseen[node] = guess.work
            assert not any(node[:depth] in ruled_out for depth in range(1, len(node)))
            if order.random() < 0.3:  # an engine has answered it before it was asked for
                answered[node] = answer(guess.work, world).thoughts
            if guess.level > 3:
                break
        assert all(count <= config.n for count in levels.values())
        expandable = search.expandable()
        work = pending.pop(order.randrange(len(pending)))
        search.tell(answer(work, world))
        gone = {path for path in expandable if path not in search.expandable()}
        left = (search.tree.get(path) for path in gone)  # an early stop drops whole subtrees
        ruled_out |= {node.path for node in left if node and node.fate is not Fate.EXPANDED}
    asked = {node.path for node in search.tree}
    for node, guess in foreseen.items():
        if node in asked:
            assert guess == asked_for.get(node, guess)
    assert not any(search.tree[path].fate is Fate.EXPANDED for path in ruled_out & asked)


def test_foresight_covers_the_next_expansions_of_a_decided_search():
    """All scored but one: the three best of four are foreseen, and then asked as foreseen."""
    search = build(BeamSearchConfig(n=4, beam_width=2, num_iterations=3))
    step = (Thought((1,), "a\n\n", Stop.STEP),)
    for work in search.ask():
        search.tell(Generated(work.node, step))
    search.ask()
    for child, score in ((0, 0.9), (1, 0.2), (2, 0.8)):
        search.tell(Scored((child,), score))
    assert search.expandable() == {(0,), (2,), (3,)}, "1 is outranked by two, 3 has no score yet"
    guesses = list(search.foresee({}))
    assert [(g.work.node, g.level) for g in guesses] == [
        ((0, 0), 1),
        ((0, 1), 1),
        ((2, 0), 1),
        ((2, 1), 1),
    ]
    deeper = list(search.foresee({(0, 0): step}))
    assert [(g.work.node, g.level) for g in deeper if g.level == 2] == [
        ((0, 0, 0), 2),
        ((0, 0, 1), 2),
    ]
    search.tell(Scored((3,), 0.1))
    assert search.ask() == [g.work for g in guesses]


def test_a_step_that_cannot_be_kept_is_pruned_without_a_score():
    search = build(BeamSearchConfig(n=4, beam_width=4, num_iterations=3, agg_strategy="min"))
    step = (Thought((1,), "a\n\n", Stop.STEP),)
    for work in search.ask():
        search.tell(Generated(work.node, step))
    search.ask()
    for child, score in ((0, 0.5), (1, 0.2), (2, 0.3), (3, 0.1)):
        search.tell(Scored((child,), score))
    for work in search.ask():
        search.tell(Generated(work.node, step))
    assert len(search.ask()) == 4
    assert search.unwanted() == []
    search.tell(Scored((0, 0), 0.7))  # min along the path: 0.5, which no sibling can beat
    assert search.unwanted() == [(0, 1), (0, 2), (0, 3)]
    assert [search.tree[0, child].fate for child in range(4)] == [
        Fate.EXPANDED,
        *[Fate.PRUNED] * 3,
    ]
    assert [work.node for work in search.ask()] == [(0, 0, child) for child in range(4)]
    search.tell(Scored((0, 1), 0.9))
    assert search.tree[0, 1].score is None, "late: it had been pruned"


def test_no_active_beam_is_scored_once_enough_chains_have_ended():
    search = build(BeamSearchConfig(n=2, beam_width=1, num_iterations=3))
    search.ask()
    search.tell(Generated((0,), (Thought((1,), "a", Stop.END),)))
    search.tell(Generated((1,), (Thought((1,), "a\n\n", Stop.STEP),)))
    assert [work.node for work in search.ask()] == [(0,), (1,)]
    search.tell(Scored((0,), 0.5))
    assert search.unwanted() == [], "one completion is missing: the other beam goes on"
    search.tell(Scored((1,), 0.5))
    assert [work.node for work in search.ask()] == [(1, 0), (1, 1)]
    search.tell(Generated((1, 0), (Thought((1,), "a", Stop.END),)))
    search.tell(Generated((1, 1), (Thought((1,), "a\n\n", Stop.STEP),)))
    assert [work.node for work in search.ask()] == [(1, 0)], "the second completion"
    assert search.expandable() == set()
    search.tell(Scored((1, 0), 0.5))
    assert search.done
    assert search.tree[1, 1].fate is Fate.PRUNED
