"""One problem's comparisons, and what decides without a worker: notations, numbers too large."""

import asyncio
import gc
import random
from concurrent.futures import Future
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.grading.sync import SyncGrader

from tts.grading import Grader, Outcome, ProblemGrader, Reason, Verdict, group_answers
from tts.grading.problem_grader import (
    Reply,
    _result,
    is_decimal_comma,
    is_same_choice,
    is_too_costly,
    may_be_same_time,
)
from tts.grading.sketch import Kind, Parsed, Sketch

TIMEOUT = Verdict(Outcome.UNDECIDED, Reason.TIMEOUT)
DIFFERENT = Verdict(Outcome.DIFFERENT, Reason.MATH)


class Workers:
    """Answers what it is asked: "s3" has a sketch of value 3, others none; "c..." overruns."""

    def __init__(self, read_s=0.0, compare_s=0.0, order=None):
        self.asked = []
        self._costs = {"read": read_s, "compare": compare_s}
        self._order = order

    def ask(self, *request):
        self.asked.append(request)
        reply = Future()
        value = Reply(self._content(*request), self._costs[request[0]])
        if self._order is None:
            reply.set_result(value)
        else:  # later, in an order of its own
            loop = asyncio.get_running_loop()
            loop.call_later(self._order.random() / 1e4, reply.set_result, value)
        return reply

    def compared(self):
        return [request[1:] for request in self.asked if request[0] == "compare"]

    def _content(self, task, *answers):
        if task == "compare":
            return TIMEOUT if any(answer.startswith("c") for answer in answers) else DIFFERENT
        (answer,) = answers
        if answer.startswith("h"):
            return TIMEOUT
        value = ((Decimal(answer[1:]), Decimal(0)),)
        has_sketch = answer.startswith("s")
        return Parsed((answer,), True, Sketch(Kind.SCALAR, "", value) if has_sketch else None)


def grouped(answers, workers, cpu_s=100.0):
    async def main():
        problem = ProblemGrader(workers.ask, cpu_s)
        await problem.read(answers)
        verdicts = [await problem.equal(answer, answers[0]) for answer in answers]
        return await group_answers(answers, problem), verdicts

    return asyncio.run(main())


def test_answers_told_apart_by_their_sketches_are_read_once_and_never_compared():
    workers = Workers()
    answers = [f"s{n}" for n in range(256)]
    groups, _ = grouped(answers, workers)
    assert groups == list(range(256))
    assert workers.asked == [("read", answer) for answer in answers]


@pytest.mark.parametrize("kind", ["c", "h"])
def test_an_overrun_is_remembered_by_the_answer_and_not_by_the_pair(kind):
    workers = Workers()
    answers = ["o1", *(f"{kind}{n}" for n in range(8)), "o2"]
    groups, verdicts = grouped(answers, workers)
    assert groups == list(range(10))
    assert [verdict.undecided for verdict in verdicts] == [False] + [True] * 8 + [False]
    overruns = [pair for pair in workers.compared() if "c" in "".join(pair)]
    assert len(overruns) == (8 if kind == "c" else 0)


async def test_of_two_answers_that_overrun_the_one_without_a_sketch_is_given_up():
    workers = Workers()

    problem = ProblemGrader(workers.ask, 100.0)
    assert await problem.equal("s1", "c1") == TIMEOUT
    assert await problem.equal("s2", "c1") == TIMEOUT
    assert await problem.equal("s1", "o1") == DIFFERENT
    assert workers.compared() == [("s1", "c1"), ("s1", "o1")]


def test_what_the_budget_does_not_cover_is_undecided_and_not_asked():
    workers = Workers(compare_s=1.0)
    _, verdicts = grouped([f"o{n}" for n in range(8)], workers, cpu_s=3.0)
    assert [verdict.reason for verdict in verdicts[1:]] == [Reason.MATH] * 3 + [Reason.BUDGET] * 4
    assert len(workers.compared()) == 3
    slow = Workers(read_s=1.0)
    grouped([f"o{n}" for n in range(100)], slow, cpu_s=20.0)
    assert len(slow.asked) == 32  # two times 16: the budget is looked at in between


def test_the_budget_of_one_problem_is_not_that_of_another():
    workers = Workers(read_s=1.0)
    for _ in range(2):
        _, verdicts = grouped(["s1", "s2"], workers, cpu_s=2.5)
        assert verdicts[1] == Verdict(Outcome.DIFFERENT, Reason.INVARIANTS)


def test_integers_are_not_read():
    workers = Workers()
    assert grouped(["1", "2", "1.0", "3"], workers)[0] == [0, 1, 0, 2]
    assert workers.asked == []


answer = st.tuples(st.sampled_from("soch"), st.integers(0, 3)).map(lambda p: f"{p[0]}{p[1]}")


@given(st.lists(answer, min_size=1, max_size=40), st.integers(0, 99), st.floats(0.5, 30))
def test_groups_and_verdicts_do_not_depend_on_which_worker_answers_first(answers, seed, cpu_s):
    at_once = grouped(answers, Workers(0.5, 0.7), cpu_s)
    assert grouped(answers, Workers(0.5, 0.7, random.Random(seed)), cpu_s) == at_once


def test_real_answers_group_alike_with_one_worker_and_with_several():
    answers = [r"\frac{1}{2}", "x+1", "0.5", "(1,2)", "1+x", r"\sqrt{4}", "2", "[1,2]", "(1, 2)"]

    async def main(workers):
        async with Grader(workers=workers, cpu_s=10) as grader:
            problem = grader.problem()
            await problem.read(answers)
            return await group_answers(answers, problem)

    assert asyncio.run(main(1)) == asyncio.run(main(2)) == [0, 1, 0, 2, 1, 3, 3, 4, 2]


async def test_a_failure_after_its_caller_was_cancelled_is_not_warned_of():
    warnings = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: warnings.append(context["message"]))
    reply = Future()
    caller = asyncio.ensure_future(_result(reply))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    reply.set_exception(RuntimeError("closed"))
    await asyncio.sleep(0.01)
    gc.collect()
    assert warnings == []


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


def test_a_comma_keeps_its_other_readings(grader):
    pairs = ("1.22", "1,220"), ("1220", "1,220"), ("22, 1", "1,22")
    assert [grader.equal_sync(*pair).equal for pair in pairs] == [False, True, True]


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
