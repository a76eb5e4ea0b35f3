"""What is read back of an interrupted run."""

from tests.runs.test_log import V1_RUN

from tts.runs.events import (
    Generated,
    LoggedThought,
    ProblemSolved,
    ProblemStarted,
    Scored,
)
from tts.runs.folder import create_run
from tts.runs.log import RunLog, read_events
from tts.runs.resume import ResumePoint, read_resume_point, resumed_work
from tts.search import ResumedWork, Stop, Thought


def test_a_folder_without_a_log_is_begun_anew(tmp_path):
    assert read_resume_point(tmp_path, "best") == ResumePoint({}, {})


def test_solved_problems_keep_their_verdict_and_unfinished_ones_their_work(tmp_path):
    def solved(problem, correct):
        return ProblemSolved(
            t=1.0, problem=problem, answers={}, correct=correct, any_correct=None, tree_digest="d"
        )

    request = {"t": 1.0, "sent": 0.0, "done": 1.0, "prompt_tokens": 5, "in_flight": (1, 0)}
    thoughts = (LoggedThought((1, 2), "x\n\n", Stop.STEP), LoggedThought((3,), "y", Stop.END))
    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        for problem in ("right", "unknown", "open"):
            log.write(ProblemStarted(t=0.0, problem=problem))
            log.write(
                Generated(
                    problem=problem, node=(0,), kind="main", tokens=3, thoughts=thoughts, **request
                )
            )
            log.write(Scored(t=1.0, problem=problem, node=(0, 0), score=0.25, cached=True))
        log.write(solved("right", {"best": True, "majority": False}))
        log.write(solved("unknown", None))
    point = read_resume_point(tmp_path, "best")
    assert point.solved == {"right": True, "unknown": None}
    assert read_resume_point(tmp_path, "majority").solved["right"] is False
    assert {name: resumed_work(problem) for name, problem in point.unfinished.items()} == {
        "open": ResumedWork(
            {(0,): (Thought((1, 2), "x\n\n", Stop.STEP), Thought((3,), "y", Stop.END))},
            {(0, 0): 0.25},
        )
    }


def test_a_finished_run_of_version_1_leaves_nothing_to_do():
    point = read_resume_point(V1_RUN, "weighted")
    solved = [event for event in read_events(V1_RUN) if isinstance(event, ProblemSolved)]
    assert point == ResumePoint({each.problem: each.correct["weighted"] for each in solved}, {})
    assert point.solved
