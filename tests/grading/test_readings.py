import pytest
from tests.grading.sync import SyncGrader

from tts.grading import Reason
from tts.grading.problem_grader import is_decimal_comma, is_same_choice, may_be_same_time


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


@pytest.mark.parametrize(
    ("answer", "other", "same"),
    [
        ("D", "(D) 12 km", True),
        ("(D)", r"\textbf{(D)}\ 12", True),
        (r"\text{(D)}", r"$\text{(D) 12 km}$", True),
        ("D.", r"(D) \frac{1}{2}", True),
        ("D", "D) 12", True),
        ("D", "（D） 12", True),
        ("D", "D. 12", True),
        ("D", "Option D", True),
        ("D", "choice (D)", True),
        ("C", "Option D", False),
        ("C", "(D) 12 km", False),
        ("E", "(D) e", False),
        ("D", "(D)", None),  # math-verify's
        ("D", "12 km", None),
        ("d", "(D) 12 km", None),
        ("12 km", "(D) 12 km", None),
        ("(D) 12", "(D) 13", None),
        ("D", "D Diana", None),
        ("D", "(D) + 3", None),
        ("D", r"(D) \cdot 3", None),
        ("D", "(D), (E)", None),
        ("D", "(D)12", None),
        ("x", "(x) 5", None),
    ],
)
def test_a_letter_is_the_choice_that_is_labelled_with_it(answer, other, same):
    assert is_same_choice(answer, other) is same
    assert is_same_choice(other, answer) is same


@pytest.mark.parametrize(
    ("answer", "reference", "comma"),
    [
        *(("1.22", "1,22", True), ("1.220", "1,22", True), ("1.22", "$1{,}22$", True)),
        *(("-1.5", "-1,5", True), ("-1.5", "−1,5", True)),
        ("0.22", "0,220", True),  # no group of thousands begins with 0
        ("1220.5", "1220,500", True),  # nor has four digits
        *(("1.22", "1,220", False), ("1.22", "1{,}220", False), ("1.22", "-1,22", False)),
        ("1.22", "1, 22", False),  # a list
        *(("1.22", "1,22,3", False), ("1.22", "(1,22)", False)),
        ("1,22", "1.22", False),  # what a model's comma means is not known
        *(("1,220", "1,22", False), ("1220", "1,220", False), ("1", "1,0", False)),
        *(("1.23", "1,22", False), ("122", "1,22", False), (r"\frac{61}{50}", "1,22", False)),
    ],
)
def test_only_a_decimal_comma_of_the_reference_is_a_decimal_point(answer, reference, comma):
    assert is_decimal_comma(answer, reference) == comma


@pytest.mark.parametrize(
    ("answer", "reference", "equal", "reason"),
    [
        ("1.22", "1,22", True, Reason.DECIMAL_COMMA),
        ("D", "(D) 12 km", True, Reason.CHOICES),
        ("C", "(D) 12 km", False, Reason.CHOICES),
        ("4:30 p.m.", "16:30", True, Reason.TIMES),
        ("4:30 p.m.", r"4:30\text{ a.m.}", False, Reason.TIMES),
    ],
)
def test_times_choices_and_decimal_commas_need_no_worker(answer, reference, equal, reason):
    with SyncGrader() as grader:
        verdict = grader.equal_sync(answer, reference)
        assert (verdict.equal, verdict.reason) == (equal, reason)
        assert grader.worker_pids() == []


def test_a_comma_keeps_its_other_readings():
    pairs = ("1.22", "1,220"), ("1220", "1,220"), ("22, 1", "1,22")
    with SyncGrader(workers=1, cpu_s=10) as grader:
        assert [grader.equal_sync(*pair).equal for pair in pairs] == [False, True, True]
