"""The grader and its worker processes: warm, replaced when lost, gone when closed."""

import asyncio
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.base.limits import let_take
from tests.grading.sync import SyncGrader

from tts.base import worker_process
from tts.base.worker_process import WorkerProcess, environment
from tts.grading import Grader, Outcome, Reason, Verdict
from tts.grading.problem_grader import Reply
from tts.grading.sketch import Parsed

SLOW = "(9)^{(9)^{9}}"  # keeps a worker busy for far longer than any test


def wait_until(condition):
    """Polls; the limit is for a broken test only."""
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.01)


def is_gone(pid):
    """Whether no such process runs; one that nobody has waited for yet counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("prediction", "reference", "outcome", "reason"),
    [
        (None, "5", Outcome.DIFFERENT, Reason.NO_ANSWER),
        (" ", "5", Outcome.DIFFERENT, Reason.NO_ANSWER),
        ("9^{9^{9^9}}", "9^{9^{9^9}}", Outcome.EQUAL, Reason.IDENTICAL),
        ("1,000.0", "1000", Outcome.EQUAL, Reason.CANONICAL),
        ("5", "6", Outcome.DIFFERENT, Reason.INTEGERS),
        ("7" * 2001, "5", Outcome.UNDECIDED, Reason.TOO_LONG),
        ("5", "7" * 2001, Outcome.UNDECIDED, Reason.TOO_LONG),
        ("9^{9^{9^9}}", "5", Outcome.UNDECIDED, Reason.TOO_COSTLY),
        ("5", "9^{9^{9^9}}", Outcome.UNDECIDED, Reason.TOO_COSTLY),
    ],
)
def test_shortcuts_start_no_worker(prediction, reference, outcome, reason):
    with SyncGrader() as grader:
        assert grader.equal_sync(prediction, reference) == Verdict(outcome, reason)
        assert grader.worker_pids() == []


@pytest.mark.parametrize(
    ("prediction", "reference", "equal"),
    [
        (r"\frac{1}{2}", "0.5", True),
        ("(x+1)^2", "x^2+2x+1", True),
        ("E", r"\text{(E)}", True),
        ("18.9", r"\$18.90", True),
        ("90", r"90^\circ", True),
        (r"\frac95", r"1\frac{4}{5}", True),
        ("-5i+6", "6 - 5i", True),
        ("(3/5, 8/3]", r"\left(\frac{3}{5},\frac{8}{3}\right]", True),
        ("[3/5, 8/3]", r"\left(\frac{3}{5},\frac{8}{3}\right]", False),
        (r"\frac{3}{4}", r"\frac{3}{8}", False),
        ("x+1", "x+2", False),
        ("k=1", "1", True),
        ("$1$", "$2x+z=1$", False),
        ("3.54e-07", r"3.54 \times 10^{-7}", True),
        ("3.54e-07", "3.54e-7", True),
        ("3.54e-07", "0", False),
        ("2e-10", "-10+2e", True),  # Euler's number
        ("2e-10", r"2 \times 10^{-10}", False),
        ("3,54", "3.54", False),  # a list of two numbers
        ("5\\", r"5\%", True),
        ("p=5,q=2;p=7,q=2", "p=7,q=2;p=5,q=2", True),
        ("p=5,q=2;p=7,q=2", "p=5,q=2;p=7,q=3", False),
    ],
)
def test_math_decides_the_rest(grader, prediction, reference, equal):
    verdict = grader.equal_sync(prediction, reference)
    assert verdict.outcome is (Outcome.EQUAL if equal else Outcome.DIFFERENT)
    assert verdict.reason in {Reason.MATH} | (set() if equal else {Reason.INVARIANTS})


async def test_one_grader_serves_many_tasks(grader):
    verdicts = await asyncio.gather(*(grader.equal("x+x", reference) for reference in ["2x", "3x"]))
    assert [verdict.equal for verdict in verdicts] == [True, False]


async def test_an_answer_is_read_once_and_a_pair_compared_once(monkeypatch):
    asked = []

    def ask(self, request):
        asked.append(request)
        if request[0] == "read":
            return Reply(Parsed((request[1],), True, None), 0.0)
        return Reply(Verdict(Outcome.EQUAL, Reason.MATH), 0.0)

    monkeypatch.setattr(Grader, "_ask_worker", ask)

    async with Grader() as grader:
        await asyncio.gather(*(grader.equal("x", "y") for _ in range(20)))
        await grader.equal("x", "y")
        await grader.equal("y", "x")
    assert asked == [("read", "x"), ("read", "y"), ("compare", "x", "y"), ("compare", "y", "x")]


def test_a_late_worker_is_replaced():
    with SyncGrader(workers=1, cpu_s=0.2) as grader:
        assert grader.equal_sync(SLOW, "5") == Verdict(Outcome.UNDECIDED, Reason.TIMEOUT)
        assert grader.worker_pids() == []
        let_take(60, *grader._workers)
        assert grader.equal_sync("1/3", r"\frac13").equal
        assert len(grader.worker_pids()) == 1


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        (1, Verdict(Outcome.EQUAL, Reason.MATH)),
        (2, Verdict(Outcome.UNDECIDED, Reason.TIMEOUT)),
    ],
)
def test_a_question_is_asked_of_two_workers_though_the_first_is_stuck(monkeypatch, times, verdict):
    read_line = WorkerProcess._read_line
    stuck = []

    def suspended(self, request, limit):
        line = read_line(self, request, limit)
        if json.loads(line)[0] == 0:  # it has started
            last = len(stuck) == times
            monkeypatch.setattr(worker_process, "_STALL_S", 60.0 if last else -99.5)  # of 100 s
            if not last:
                stuck.append(self.pid)
                psutil.Process(self.pid).suspend()
        return line

    monkeypatch.setattr(WorkerProcess, "_read_line", suspended)
    with SyncGrader(cpu_s=10) as grader:
        assert grader.equal_sync("1/2", "0.5") == verdict
    assert len(stuck) == times
    assert all(is_gone(pid) for pid in stuck)


def test_an_idle_worker_killed_by_others_is_replaced():
    with SyncGrader(cpu_s=10) as grader:
        assert grader.equal_sync("1/2", "0.5").equal
        (first,) = grader.worker_pids()
        psutil.Process(first).kill()
        wait_until(lambda: is_gone(first))
        assert grader.equal_sync("1/3", r"\frac13").equal
        assert grader.worker_pids() != [first]


@pytest.mark.parametrize(
    ("deaths", "verdict"),
    [
        (1, Verdict(Outcome.EQUAL, Reason.MATH)),
        (2, Verdict(Outcome.UNDECIDED, Reason.CRASHED)),
    ],
)
def test_a_question_is_asked_of_two_workers_at_most(monkeypatch, deaths, verdict):
    send = WorkerProcess._exchange
    killed = []

    def kill_and_send(self, request):
        if len(killed) < deaths:
            killed.append(self.pid)
            psutil.Process(self.pid).kill()
        return send(self, request)

    monkeypatch.setattr(WorkerProcess, "_exchange", kill_and_send)
    with SyncGrader(cpu_s=10) as grader:
        assert grader.equal_sync("1/2", "0.5") == verdict
        assert len(set(killed)) == deaths
        assert grader.equal_sync("1/3", r"\frac13").equal
    assert all(is_gone(pid) for pid in killed)


def test_memory_is_capped():
    """Little memory and plenty of time: what would take 128 MB comes back soon."""
    with SyncGrader(cpu_s=60, memory_mb=96) as grader:
        assert not grader.equal_sync("(2)^{(10)^{9}}", r"\sqrt{5}").equal
        assert grader.equal_sync("1/2", "0.5").equal


async def test_several_workers_share_the_work():
    async with Grader(workers=2, cpu_s=60) as grader:
        slow = asyncio.create_task(grader.equal(SLOW, "5"))
        fast = await asyncio.gather(*(grader.equal(f"{n}/7", f"\\frac{{{n}}}7") for n in range(5)))
        assert all(verdict.equal for verdict in fast)
        assert not slow.done()
        pids = grader.worker_pids()
    with pytest.raises(RuntimeError, match="closed"):
        await slow
    assert all(is_gone(pid) for pid in pids)


async def test_a_cancelled_call_leaves_the_grader_usable():
    async with Grader(workers=2, cpu_s=60) as grader:
        await grader.equal("1/2", "0.5")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(grader.equal(SLOW, "5"), 0.1)
        assert (await grader.equal("1/3", r"\frac13")).equal
        pids = grader.worker_pids()
    assert all(is_gone(pid) for pid in pids)


async def test_closing_ends_a_question_under_way():
    grader = Grader(cpu_s=60)
    await grader.equal("1/2", "0.5")
    pids = grader.worker_pids()
    question = asyncio.create_task(grader.equal(SLOW, "5"))
    await asyncio.sleep(0.1)
    grader.close()
    with pytest.raises(RuntimeError, match="closed"):
        await question
    assert all(is_gone(pid) for pid in pids)
    grader.close()
    with pytest.raises(RuntimeError, match="closed"):
        await grader.equal("1/3", "0.3")


async def test_closing_while_a_worker_starts():
    grader = Grader()
    question = asyncio.create_task(grader.equal("1/2", "0.5"))
    await asyncio.sleep(0.05)
    grader.close()
    with pytest.raises(RuntimeError, match="closed"):
        await question
    assert grader.worker_pids() == []


OUTLIVED = """
import asyncio, signal
from tts.grading import Grader
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
async def main():
    async with Grader(workers=1, cpu_s=LIMIT) as grader:
        question = asyncio.create_task(grader.equal("(9)^{(9)^{9}}", "5"))
        (worker,) = grader._workers
        while worker._number == 0:  # it computes from then on, and notices no end of its input
            await asyncio.sleep(0.01)
        print(worker.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize(("number", "cpu_s"), [(signal.SIGINT, 1000), (signal.SIGKILL, 0.5)])
def test_no_worker_outlives_its_parent(number, cpu_s):
    command = [sys.executable, "-c", OUTLIVED.replace("LIMIT", str(cpu_s))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(number)
        parent.wait(timeout=60)
        wait_until(lambda: is_gone(pid))


def worker(code, *limits, requests=()):
    """What a worker prints that runs this code, and how it ends."""
    return subprocess.run(
        [sys.executable, "-c", code, *limits],
        input="".join(json.dumps(each) + "\n" for each in enumerate(requests, 1)),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )


def test_the_worker_speaks_json_lines():
    requests = [["compare", *pair] for pair in (("1/2", "0.5"), ("\ud800\0", "5"), ("x", "y"))]
    code = "from tts.grading.worker import main; main()"
    done = worker(code, "512", "10", requests=[*requests, ["read", "(1, x)"]])
    ready, *replies = map(json.loads, done.stdout.splitlines())
    assert ready == [0, 0.0, None]
    assert [reply[0] for reply in replies] == [1, 2, 3, 4]
    *verdicts, (_, cpu_s, (kind, parsed)) = replies
    assert [verdict[2][1]["outcome"] for verdict in verdicts] == ["equal", "different", "different"]
    assert (kind, parsed["texts"], parsed["has_formula"]) == ("parsed", ["(1, x)"], True)
    assert parsed["sketch"]["kind"] == "interval"
    assert cpu_s > 0


def test_a_worker_starts_under_a_limit_of_the_user_s_own():
    """Lower than the one that it is told, and one that no process can raise again."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2**30}, {2**30}))"
    done = worker(f"{limit}; from tts.grading.worker import main; main()", "4096", "1")
    assert json.loads(done.stdout) == [0, 0.0, None], done.stderr


BUSY_OR_WAITING = """
import time
from tts.grading import equivalence, worker
def compare(prediction, reference):
    while prediction == "busy":
        pass
    time.sleep(1.1)  # what a worker without a processor does
    return equivalence.Verdict("equal", "math-verify")
equivalence.compare = compare
worker.main()
"""


@pytest.mark.parametrize(
    ("behaviour", "cpu_s", "code", "replies"),
    [("busy", "0.1", -signal.SIGPROF, 0), ("waiting", "1", 0, 1)],
)
def test_a_worker_is_late_by_the_processor_time_it_took_and_not_by_the_clock(
    behaviour, cpu_s, code, replies
):
    done = worker(BUSY_OR_WAITING, "512", cpu_s, requests=[["compare", behaviour, "x"]])
    assert done.returncode == code
    assert len(done.stdout.splitlines()[1:]) == replies


def test_the_parent_never_imports_sympy():
    script = "import sys, tts.grading; sys.exit('sympy' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, env=environment())
