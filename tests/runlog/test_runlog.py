"""The run log survives kills, and a summary is derived from it alone."""

import json
import os

import pytest

from tts.analysis.summary import summarise
from tts.build.errors import RunError
from tts.runlog.log import EVENTS, RunLog, create_run, read_config, read_events, read_summary

CONFIG = {
    "deployment": "d",
    "dataset": "x",
    "strategy": "beam-search",
    "schedule": "decoupled",
    "seed": 3,
    "vote": "weighted",
    "parameters": {"n": 4},
}


def test_events_come_back_as_written(tmp_path):
    create_run(tmp_path / "run", {"a": 1})
    with RunLog(tmp_path / "run") as log:
        log.write({"event": "x", "node": (0, 1), "text": "héllo \ud800"})
    session, event = read_events(tmp_path / "run")
    assert session["event"] == "session"
    assert (event["node"], event["text"]) == ([0, 1], "héllo \ud800")
    assert event["t"] >= 0
    assert read_config(tmp_path / "run") == {"a": 1}


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_line_cut_short_by_a_kill_is_dropped_and_the_log_goes_on(tmp_path, cut):
    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        log.write({"event": "kept", "long": "x" * 5000})
        log.write({"event": "lost", "filler": "y" * 40})
    file = tmp_path / EVENTS
    os.truncate(file, file.stat().st_size - cut)
    assert [event["event"] for event in read_events(tmp_path)] == ["session", "kept"]
    with RunLog(tmp_path) as log:
        log.write({"event": "after"})
    names = [event["event"] for event in read_events(tmp_path)]
    assert names == ["session", "kept", "session", "after"]


def test_a_line_broken_in_the_middle_is_named(tmp_path):
    create_run(tmp_path, {})
    (tmp_path / EVENTS).write_text('{"event":"x"}\nnot json\n{"event":"y"}\n')
    with pytest.raises(RunError, match=r"events\.jsonl, line 2 is not JSON"):
        list(read_events(tmp_path))


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    create_run(tmp_path, {})
    with pytest.raises(RunError, match="already holds a run") as caught:
        create_run(tmp_path, {})
    assert f"--resume {tmp_path}" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        create_run(tmp_path / "file" / "run", {})


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_a_sentence_and_names_the_way_on(tmp_path):
    create_run(tmp_path, {})
    (tmp_path / EVENTS).symlink_to("/dev/full")
    log = RunLog(tmp_path)
    with pytest.raises(RunError, match="No space left on device") as caught:
        log.flush()
    assert f"tts bench --resume {tmp_path}" in str(caught.value)
    with pytest.raises(RunError, match="No space left"):
        log.close()


def test_reading_what_is_no_run_or_not_finished(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        read_summary(tmp_path)
    create_run(tmp_path, {})
    with pytest.raises(RunError, match="has not finished; continue it with --resume"):
        read_summary(tmp_path)


def solved(problem, level, correct, digest="d"):
    return {
        "event": "problem_solved",
        "problem": problem,
        "level": level,
        "correct": correct,
        "any_correct": any(correct.values()),
        "undecided": 0,
        "answers": {"best": "1", "weighted": "1", "majority": "1"},
        "tree_digest": digest,
    }


REQUEST = {"problem": "a", "node": [0], "kind": "main", "prompt_tokens": 7}
EVENTS_OF_TWO_SESSIONS = [
    {"event": "session", "t": 0.0},
    {"event": "generated", **REQUEST, "t": 2.0, "sent": 0.0, "done": 2.0, "tokens": 10},
    {"event": "generated", **REQUEST, "t": 2.0, "sent": 1.0, "done": 2.0, "tokens": 6},
    {"event": "session", "t": 0.0},
    {"event": "scored", **REQUEST, "t": 1.5, "sent": 0.5, "done": 1.5, "cached": False},
    {"event": "scored", "t": 1.6, "cached": True},
    solved("b", 1, {"best": False, "weighted": True, "majority": False}) | {"t": 1.8},
    solved("a", 2, {"best": False, "weighted": False, "majority": False}) | {"t": 2.0},
]


def test_a_summary_adds_up_sessions_and_splits_accuracy():
    summary = summarise(CONFIG, EVENTS_OF_TWO_SESSIONS)
    assert summary["problems"] == 2
    assert summary["wall_s"] == 4.0
    assert summary["generated_tokens"] == 16
    assert summary["tokens_per_s"] == 4.0
    assert summary["mean_in_flight"] == {"generator": 0.75, "verifier": 0.25}
    assert (summary["verifier_calls"], summary["verifier_cached"]) == (1, 1)
    assert summary["accuracy"] == 0.5
    assert summary["accuracy_by_rule"] == {"best": 0.0, "majority": 0.0, "weighted": 0.5}
    assert summary["accuracy_by_level"]["1"] == {"problems": 1, "accuracy": 1.0}
    assert summary["sessions"] == 2
    json.dumps(summary)


def test_the_digest_does_not_depend_on_the_order_of_problems_but_on_trees_and_answers():
    events = EVENTS_OF_TWO_SESSIONS
    digest = summarise(CONFIG, events)["tree_digest"]
    assert summarise(CONFIG, [*events[:6], events[7], events[6]])["tree_digest"] == digest
    other_tree = {**events[6], "tree_digest": "e"}
    assert summarise(CONFIG, [*events[:6], other_tree, events[7]])["tree_digest"] != digest
    other_answer = {**events[6], "answers": {"best": "2", "weighted": "1", "majority": "1"}}
    assert summarise(CONFIG, [*events[:6], other_answer, events[7]])["tree_digest"] != digest


def test_a_run_without_references_has_no_accuracy():
    event = solved("a", None, {"best": False}) | {"t": 1.0, "correct": None}
    summary = summarise(CONFIG, [{"event": "session", "t": 0.0}, event])
    assert summary["accuracy"] is None
    assert summary["accuracy_by_level"] == {}
