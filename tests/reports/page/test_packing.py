"""Trees in a page: packed one by one, and which is shown first."""

import base64
import gzip
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tts.reports.page.packing import PackedTree, first_shown, pack
from tts.reports.page.trees import ProblemTree, ThoughtRecord
from tts.runs.events import Cancelled, LoggedAnswer, LoggedCompletion, LoggedThought
from tts.search import Fate, Stop

TEXTS = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs included


def unpack(packed):
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@settings(max_examples=40)
@given(TEXTS, TEXTS)
def test_a_tree_comes_out_as_it_went_in(text, answer):
    record = ThoughtRecord(
        (0, 1), (0, 1), LoggedThought((1, 2, 3), text, Stop.END), 10.5, 11.0, True, None, 0.5, 12.0
    )
    tree = ProblemTree(
        "p", began=10.0, ended=13.25, thoughts=[record], correct=False, answer=answer
    )
    ahead = {"problem": "p", "node": (), "kind": "prefetch", "work": "prefetch", "why": "slot"}
    tree.cancelled = [
        (8.0, Cancelled(t=2.125, sent=2.0, done=2.125, prompt_tokens=1, in_flight=(1, 0), **ahead))
    ]
    tree.completions = (LoggedCompletion((0, 1), 0.25, 0),)
    tree.groups = (LoggedAnswer(answer, False),)
    packed = pack(tree)
    assert packed.entry["seconds"] == 3.25
    assert packed.entry["correct"] is False
    assert unpack(packed.packed) == {
        "seconds": 3.25,
        "limit": None,
        "groups": [{"answer": answer, "correct": False}],
        "completions": [{"path": "0.1", "score": 0.25, "group": 0}],
        "thoughts": [
            {
                "path": "0.1",
                "text": text,
                "stop": "end",
                "tokens": 3,
                "sent": 500,
                "done": 1000,
                "score": 0.5,
                "scored": 2000,
                "fate": "unused",
                "speculative": True,
            }
        ],
        "cancelled": [{"path": "", "work": "prefetch", "why": "slot", "sent": 0, "done": 125}],
    }


def test_a_score_of_zero_is_kept():
    record = ThoughtRecord(
        (0,), (0,), LoggedThought((), "", Stop.STEP), 0.0, 0.0, False, 0.0, 0.0, 0.0
    )
    record.fate, record.decided = Fate.PRUNED, 0.0
    (thought,) = unpack(pack(ProblemTree("p", thoughts=[record])).packed)["thoughts"]
    assert (thought["score"], thought["sent"], thought["decided"]) == (0.0, 0, 0)


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
        found = ProblemTree("p", correct=correct)
        found.groups = tuple(
            LoggedAnswer(str(place), right) for place, (right, _) in enumerate(groups)
        )
        found.completions = tuple(
            LoggedCompletion((place, each), 0.5, place)
            for place, (_, count) in enumerate(groups)
            for each in range(count)
        )
        return pack(found).teaches

    assert tree(True, (True, 1), (False, 3)) == 3
    assert tree(True, (True, 3), (False, 1)) == 2
    assert tree(False, (True, 1), (False, 3)) == 1
    assert tree(True, (True, 4)) == tree(False, (False, 4)) == tree(None) == 0
