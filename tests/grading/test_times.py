import pytest

from tts.grading import Grader, Reason
from tts.grading.times import may_be_same_time


@pytest.mark.parametrize(
    ("answer", "other", "same"),
    [
        (r"4:30 \text{p.m.}", r"4:30\text{ p.m.}", True),
        (r"4:30 \text{p.m.}", "4:30 PM", True),
        (r"$4:30\ \text{p.m.}$", "4:30", True),
        ("16:30", "4:30 p.m.", True),
        ("12:05 a.m.", "0:05", True),
        ("12:05 p.m.", "12:05", True),
        ("12:05 a.m.", "12:05", True),
        (r"4:30 \text{p.m.}", r"4:30 \text{a.m.}", False),
        (r"4:30 \text{p.m.}", r"2:15 \text{p.m.}", False),
        (r"4:30 \text{p.m.}", "2:15", False),
        ("16:30", "4:30 a.m.", False),
        ("12:05 p.m.", "0:05 a.m.", False),
        ("4:30", "2:15", None),
        ("4:30 p.m.", "4.5", None),
        ("4:75 p.m.", "4:30 p.m.", None),
        ("1:2", "2:4", None),
    ],
)
def test_times_of_day_are_compared_as_such_once_one_says_which_half(answer, other, same):
    assert may_be_same_time(answer, other) is same
    assert may_be_same_time(other, answer) is same


def test_times_of_day_need_no_worker():
    with Grader() as grader:
        assert grader.equal_sync("4:30 p.m.", r"4:30\text{ a.m.}").reason is Reason.TIMES
        assert grader.worker_pids() == []
