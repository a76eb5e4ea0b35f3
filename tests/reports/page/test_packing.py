"""Trees in a page: packed one by one, and which is shown first."""

import base64
import gzip
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runs.logs import SESSION, cut, expansion, scoring, solved, started, texts

from tts.reports.page.trees import PackedTree, first_shown, pack
from tts.runs.events import LoggedAnswer, LoggedCompletion
from tts.runs.state import all_problems

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
