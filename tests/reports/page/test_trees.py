"""Trees as the log tells them: fates, times, and what was sent ahead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.driver.scripted_run import Run
from tests.runs.logs import LOGS, SESSION, cut, expansion, scoring, solved, started, texts, used
from tests.runs.replay.recordings import words_of

from tts.reports.page.trees import tree_thoughts
from tts.runs.events import LoggedCompletion, logged_fates
from tts.runs.state import all_problems
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
    Fate,
    MctsConfig,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
)

CONFIGS = [
    BeamSearchConfig(n=8, beam_width=4, num_iterations=5),
    SampleSearchConfig(n=4, max_tokens=60),
    DvtsConfig(n=6, beam_width=2, num_iterations=4),
    RebaseConfig(n=6, num_iterations=4, finish="eos", max_tokens=60),
    ParticleConfig(n=6, num_iterations=4, ess_threshold=1.0),
    MctsConfig(n=4, max_tokens=60),
]


def generated(node, sent, done, kind="main", stop="step"):
    thoughts = texts("step\n\n", stop=stop, length=2)
    return expansion(node, sent, done, kind, thoughts=thoughts)


def scored(node, at, score, *, cached=False):
    return scoring(node, at, at, score=score, cached=cached)


def only_tree(*events):
    """A log's one problem, and the thoughts of its tree by path."""
    (problem,) = all_problems([SESSION, started("a", 1.0), *events])
    return problem, {record.path: record for record in tree_thoughts(problem)}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
@settings(max_examples=3)
@given(jitter=st.integers(0, 99), speculation=st.sampled_from(["off", "always"]))
def test_fates_and_scores_are_those_of_the_tree_that_was_grown(
    tiny_deployment, config, jitter, speculation
):
    words, policy = words_of(tiny_deployment), {"jitter": jitter, "speculation": speculation}
    run = Run(tiny_deployment, words, config, "decoupled", **policy).go()
    now = max(event.t for event in run.events)
    ends = [
        solved(
            name,
            now,
            tree_digest=search.result().tree.digest(),
            completions=tuple(
                LoggedCompletion(done.node, done.score, -1) for done in search.result().completions
            ),
            fates=logged_fates(search.result()),
        )
        for name, search in run.searches.items()
    ]
    problems = list(all_problems([SESSION, *run.events, *ends]))
    assert [problem.id for problem in problems] == list(run.searches)
    for problem in problems:
        grown = run.searches[problem.id].result().tree
        mine = {record.path: record for record in tree_thoughts(problem) if record.fate is not None}
        written = {node.path: node for node in grown if node.path in mine}
        missing = [node for node in grown if node.path not in mine]
        assert all(not node.thought.token_ids for node in missing)  # their context was full
        for path, node in written.items():
            assert mine[path].fate is node.fate
            assert mine[path].thought.ids == node.thought.token_ids
            if node.score is not None and mine[path].score is not None:
                assert mine[path].score == pytest.approx(node.score, abs=1e-4)
        assert set(mine) <= {node.path for node in grown}
        assert all(record.decided is not None for record in mine.values())


def test_a_tree_is_in_the_order_of_events():
    events = [
        generated([0], 1.1, 2.0),
        generated([1], 1.1, 2.5),
        scored([0], 3.0, 0.9),
        scored([1], 3.1, 0.2, cached=True),
        generated([0, 0], 3.2, 4.0, stop="end"),
        generated([0, 1], 3.2, 4.1, stop="end"),
        generated([1, 0], 3.2, 4.2, kind="speculative"),
        cut([1, 1], 3.2, 3.5),
        scored([0, 0], 5.0, 0.8),
    ]
    end = solved(
        "a",
        6.0,
        completions=(LoggedCompletion((0, 0), 0.8, -1),),
        fates={Fate.PRUNED: ((1,),), Fate.SURPLUS: ((0, 1),)},
    )
    problem, thoughts = only_tree(*events, end)
    fates = {path: thoughts[path].fate for path in thoughts}
    assert fates == {
        (0,): Fate.EXPANDED,
        (1,): Fate.PRUNED,
        (0, 0): Fate.COMPLETED,
        (0, 1): Fate.SURPLUS,
        (1, 0): None,
    }
    assert list(thoughts) == [(0,), (1,), (0, 0), (0, 1), (1, 0)]
    assert (thoughts[0,].decided, thoughts[1,].decided) == (3.2, 3.2)
    assert thoughts[0, 0].decided == problem.solved_at == 6.0
    assert (thoughts[1,].reused, thoughts[0,].reused) == (True, False)
    assert (thoughts[1,].scored, thoughts[0,].scored) == (3.1, 3.0)


def test_what_a_budget_had_no_room_for_never_entered_the_tree():
    events = [generated([0], 1, 2, stop="end"), generated([1], 1, 2), generated([1, 0], 2, 3)]
    _, thoughts = only_tree(
        *events,
        solved(
            "a",
            3.0,
            completions=(LoggedCompletion((0,), 0.8, -1),),
            fates={Fate.PRUNED: ((1,),)},
        ),
    )
    fates = {path: thought.fate for path, thought in thoughts.items()}
    assert fates == {(0,): Fate.COMPLETED, (1,): Fate.PRUNED, (1, 0): None}
    assert thoughts[1, 0].decided is None


def test_what_was_sent_ahead_counts_from_when_it_was_asked_for():
    events = [generated([0], 1, 2), generated([0, 0], 2, 3, kind="speculative"), used([0, 0], 4.0)]
    _, thoughts = only_tree(*events)
    assert thoughts[0, 0].fate is Fate.OPEN
    assert (thoughts[0, 0].used, thoughts[0,].decided) == (4.0, 4.0)
    assert thoughts[0,].fate is Fate.EXPANDED


def test_a_problem_that_was_interrupted_goes_on_after_what_was_before():
    _, thoughts = only_tree(generated([0], 1, 2), SESSION, started("a", 0.5), generated([1], 1, 3))
    assert [(path, record.done) for path, record in thoughts.items()] == [((0,), 2.0), ((1,), 5.0)]


@settings(max_examples=30)
@given(LOGS)
def test_any_log_has_trees(events):
    for problem in all_problems(events):
        thoughts = tree_thoughts(problem)
        assert len(thoughts) == len({record.path for record in thoughts})
        assert all((record.fate is None) == (record.used is None) for record in thoughts)
