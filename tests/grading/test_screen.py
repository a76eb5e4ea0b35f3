import pytest

from tts.grading.problem_grader import is_too_costly

GIANTS = (
    *("9^{9^{9^9}}", "9**9**9**9", "10^{10^{10}}", "2^{1000000000}", r"\frac{9^{50000000}}{7}"),
    *(r"1.5 \times 10^{999999999}", "(x+1)^{1000000}", "2^{400000}", "12^{50001}"),
    *("1000000!", "((100!)!)!", "(8!)!", r"\binom{1000000000}{500000000}"),
)
ORDINARY = (
    *("", "2^{100}", "2^{2^{10}}", "2^{3^{4}}", "1^{99999}", "10^{-6}", "2016!", "(3!)!"),
    *(r"\binom{1000000}{2}", r"\frac{7!}{16}", r"\sum_{k=1}^{1000000} k", "x^{1000000}"),
    *("123456789", "2^{99999}", "9^{100000}", "12^{50000}", "(x+1)^{99999}", "99999!", "(7!)!"),
)


@pytest.mark.parametrize("answer", GIANTS)
def test_giants_are_refused(answer):
    assert is_too_costly(answer)


@pytest.mark.parametrize("answer", ORDINARY)
def test_ordinary_answers_pass(answer):
    assert not is_too_costly(answer)


@pytest.mark.parametrize("part", ["9", "9^", "9^{", "(", "9 ", "9!)", "binom{", "9**"])
def test_long_answers_finish(part):
    is_too_costly(part * 50_000)
