"""One problem's comparisons: read once, overruns per answer, a budget, no matter who is first."""

import asyncio
import gc
import random
from concurrent.futures import Future
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.grading import Grader, Outcome, ProblemGrader, Reason, Verdict, group_answers
from tts.grading.problem_grader import Reply, _result
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
