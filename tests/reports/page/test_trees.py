"""Trees as the log tells them and as a page packs them; why `auto` searched as it did."""

import base64
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.driver.scripted_run import Run
from tests.runs.logs import LOGS, SESSION, cut, expansion, scoring, solved, started, texts, used
from tests.runs.replay.recordings import words_of

from tts.reports.page.trees import PackedTree, first_shown, pack, reason, tree_thoughts
from tts.runs.events import LoggedAnswer, LoggedCompletion, logged_fates
from tts.runs.state import all_problems
from tts.search import (
    Advice,
    BeamSearchConfig,
    Decision,
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


TEXTS = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs included


def unpack(packed):
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@settings(max_examples=40)
@given(TEXTS, TEXTS)
def test_a_tree_comes_out_as_it_went_in(text, answer):
    log = [
        SESSION,
        started("p", 8.0, "What?"),
        cut((), 8.0, 8.125, work="prefetch", why="slot", problem="p"),
        expansion((0,), 8.5, 9.0, problem="p", thoughts=texts(text, length=3)),
        expansion((0, 1), 9.0, 9.5, "speculative", problem="p", thoughts=texts(text, stop="end")),
        scoring((0,), 9.5, 10.0, problem="p", score=0.0),
        scoring((0, 1), 9.5, 10.0, problem="p", score=1 / 3),
        solved(
            "p",
            11.25,
            level=3,
            reference="5",
            answers={"best": answer},
            correct={"best": False},
            completions=(LoggedCompletion((0,), 0.25, 0),),
            groups=(LoggedAnswer(answer, False),),
        ),
    ]
    (problem,) = all_problems(log)
    packed = pack(problem, "best")
    assert packed.entry == {
        "id": "p",
        "level": 3,
        "correct": False,
        "solved": True,
        "answer": answer,
        "reference": "5",
        "question": "What?",
        "seconds": 3.25,
        "tokens": 3,
        "thoughts": 2,
    }
    step = {"path": "0", "text": text, "stop": "step", "tokens": 3, "sent": 500, "done": 1000}
    ahead = {"path": "0.1", "text": text, "stop": "end", "tokens": 1, "sent": 1000, "done": 1500}
    assert unpack(packed.packed) == {
        "seconds": 3.25,
        "limit": None,
        "groups": [{"answer": answer, "correct": False}],
        "completions": [{"path": "0", "score": 0.25, "group": 0}],
        "thoughts": [
            {**step, "score": 0.0, "scored": 2000, "fate": "completed", "decided": 3250},
            {**ahead, "score": 0.3333, "scored": 2000, "fate": "unused", "speculative": True},
        ],
        "cancelled": [{"path": "", "work": "prefetch", "why": "slot", "sent": 0, "done": 125}],
    }


def test_a_problem_that_goes_on_has_no_end():
    (problem,) = all_problems([SESSION, started("p", 1.0)])
    entry = pack(problem, "best").entry
    assert (entry["solved"], entry["seconds"], entry["correct"]) == (False, None, None)


def shown(name, correct, teaches=0, level=None, thoughts=3):
    entry = {"id": name, "correct": correct, "level": level, "thoughts": thoughts}
    return PackedTree(entry, "", teaches)


def test_a_page_opens_with_the_problem_that_teaches_most():
    assert first_shown([]) is None
    assert first_shown([[]]) is None
    easy = [shown("a", True, level=5), shown("b", False, 1), shown("c", True, 3), shown("d", True)]
    assert first_shown([easy]) == {"run": 0, "id": "c", "beside": None}
    assert first_shown([[shown("a", True), shown("b", None, level=2)]])["id"] == "b"


def test_a_problem_that_one_run_has_right_and_another_has_not_comes_first():
    one = [shown("a", True, 3), shown("b", False)]
    other = [shown("b", True), shown("a", True)]
    assert first_shown([one, other]) == {"run": 0, "id": "b", "beside": 1}
    assert first_shown([one, one]) == {"run": 0, "id": "a", "beside": 1}
    third = [shown("b", True, thoughts=9)]
    assert first_shown([one, other, third]) == {"run": 2, "id": "b", "beside": 0}


def test_trees_in_which_the_verifier_overrules_the_majority_teach_most():
    def tree(correct, *groups):
        completions = tuple(
            LoggedCompletion((place, each), 0.5, place)
            for place, (_, count) in enumerate(groups)
            for each in range(count)
        )
        answers = tuple(LoggedAnswer(str(place), right) for place, (right, _) in enumerate(groups))
        right = None if correct is None else {"best": correct}
        done = solved("p", 1.0, correct=right, groups=answers, completions=completions)
        (problem,) = all_problems([SESSION, done])
        return pack(problem, "best").teaches

    assert tree(True, (True, 1), (False, 3)) == 3
    assert tree(True, (True, 3), (False, 1)) == 2
    assert tree(False, (True, 1), (False, 3)) == 1
    assert tree(True, (True, 4)) == tree(False, (False, 4)) == tree(None) == 0
    assert tree(None, (True, 1), (False, 3)) == 0


def test_a_decision_is_explained():
    advice = Advice(votes=1, allowance=1737, cap=13896, auroc=0.842)
    decision = Decision(advice, "vote", 9000, 340)
    (problem,) = all_problems([SESSION, solved("p", 1.0, decision=decision)])
    assert unpack(pack(problem, "best").packed)["why"] == reason(decision)
    assert reason(decision) == (
        "The method was MCTS, which follows the scores (the verifier's scores of steps have an "
        "area under the ROC curve of 0.84). It was allowed 1,737 tokens if it had a completion by "
        "then, and 13,896 at most. It took 9,000 tokens (it could have ended after 340) and ended "
        "because the vote was decided."
    )


CHAINS_BEFORE_ANY_VOTE = Decision(Advice(), "limit", 90, None, chain_tokens=30)


@pytest.mark.parametrize(
    ("decision", "part", "said"),
    [
        (Decision(Advice("rebase"), "vote", 900, 340), "share out chains by the scores", True),
        (Decision(Advice(), "limit", 90, None), "no completion came before the end", True),
        (CHAINS_BEFORE_ANY_VOTE, "no completion", False),
        (
            Decision(Advice(allowance=0, cap=800), "allowance", 125, 125),
            "It was to end with its first completions or at 800 tokens.",
            True,
        ),
    ],
)
def test_what_is_special_about_a_decision_is_told(decision, part, said):
    assert (part in reason(decision)) == said


@pytest.mark.parametrize("method", ["mcts", "rebase", "vote"])
@pytest.mark.parametrize("by", ["vote", "allowance", "no votes", "n", "limit"])
def test_every_decision_has_a_sentence(method, by):
    assert "was not measured" in reason(Decision(Advice(method), by, 10, None))
