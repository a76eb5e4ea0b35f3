"""No request gets the answer to another: not after Ctrl-C, in a fork, or from a lost worker."""

import gc
import json
import os
import resource
import signal
import subprocess
import threading

import psutil
import pytest
from tests.amounts import amount
from tests.base.limits import let_take
from tests.forks import said_in_a_fork
from tests.interrupts import InterruptedAt

from tts.base import worker_process
from tts.base.errors import WorkerUnavailable
from tts.base.worker_process import Loss, WorkerLost, WorkerProcess


@pytest.fixture
def worker():
    worker = WorkerProcess("tests.base.echo_worker", "echoes", cpu_s=5, memory_mb=256)
    yield worker
    worker.reap()


def interrupted(worker, said, places):
    try:
        with places:
            assert worker.ask(said).content == said
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("text", ["é\n\u2028", "half a pair: \ud800"])
def test_any_text_comes_back_as_it_was(worker, text):
    assert worker.ask([text, {"a": None}]).content == [text, {"a": None}]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a start that nobody was told of
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("warm", [False, True])
def test_after_an_interrupt_at_any_place_the_next_answer_is_the_next_request_s(worker, warm):
    place = 0
    while True:
        if warm:
            worker.ask("before")
        else:
            worker.reap()
        came = interrupted(worker, f"interrupted at {place}", InterruptedAt(worker_process, place))
        assert worker.ask([place, warm]).content == [place, warm]
        if not came:
            break
        place += amount(3, 1)
    assert place > 20  # it was really interrupted
    gc.collect()  # a worker ends with its input


@pytest.mark.parametrize("first", [8, 14, 18])  # before, while and after it is answered
def test_a_second_interrupt_while_the_worker_is_ended_mixes_no_answers(worker, first):
    reap = worker.reap

    def interrupted_reap():
        with InterruptedAt(worker_process, second):
            reap()

    for second in range(10):
        worker.ask("before")
        worker.reap = interrupted_reap
        assert interrupted(worker, "cut short", InterruptedAt(worker_process, first))
        worker.reap = reap
        assert worker.ask(second).content == second


def test_an_answer_to_another_request_is_never_taken(worker):
    worker.ask("before")
    stray = json.dumps([7, "not asked"]).encode() + b"\n"
    os.write(worker._process.stdin.fileno(), stray)
    assert worker.ask("asked").content == "asked"


@pytest.mark.parametrize(
    ("said", "loss", "cpu_s"),
    [("hang", Loss.CPU, 0.2), ("fill", Loss.MEMORY, 60), ("die", Loss.CRASHED, 60)],
)
def test_a_request_that_costs_its_worker_says_how_and_the_next_is_answered(said, loss, cpu_s):
    worker = WorkerProcess("tests.base.echo_worker", "echoes", cpu_s=cpu_s, memory_mb=256)
    with pytest.raises(WorkerLost) as lost:
        worker.ask(said)
    assert lost.value.loss is loss
    let_take(60, worker)
    assert worker.ask("next").content == "next"
    worker.reap()


@pytest.mark.parametrize(("said", "count"), [("abort", 1), ("killed", 2)])
def test_only_a_worker_that_others_may_have_ended_is_asked_again(said, count, monkeypatch):
    """Native code that runs out of memory aborts, and would do so again."""
    worker = WorkerProcess("tests.base.echo_worker", "echoes", cpu_s=5, memory_mb=256)
    started, start = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(1) or start(*a, **k))
    with pytest.raises(WorkerLost) as lost:
        worker.ask(said)
    assert (lost.value.loss, len(started)) == (Loss.CRASHED, count)
    worker.reap()


def test_requests_and_answers_of_any_length_pass(worker):
    for length in (0, 4095, 65536, 3_000_000):
        assert worker.ask("x" * length).content == "x" * length


def test_threads_get_their_own_answers(worker):
    answers = {}

    def ask(n):
        answers[n] = worker.ask(n).content

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: n for n in range(8)}


def test_a_fork_has_a_worker_of_its_own_and_leaves_the_parent_s_alone(worker):
    worker.ask("parent")
    pid = worker.pid

    def ask():
        said = worker.ask("child").content
        other = worker.pid
        worker.reap()
        return f"{said}, {'another' if other != pid else 'the same'} worker"

    assert said_in_a_fork(ask) == "child, another worker"
    assert worker.ask("parent again").content == "parent again"
    assert worker.pid == pid


def test_a_fork_that_happens_while_a_thread_asks_can_ask_too(worker):
    worker.ask("parent")
    with worker._asking:  # as a thread would that waits for its answer
        assert said_in_a_fork(lambda: (worker.ask("child").content, worker.reap())[0]) == "child"


def test_a_fork_does_not_keep_the_worker_alive(worker):
    worker.ask("parent")
    process = psutil.Process(worker.pid)

    def end():
        os.kill(os.getppid(), 0)
        return "open" if worker._process else "closed"

    assert said_in_a_fork(end) == "closed"
    assert process.is_running()


def test_a_worker_gets_no_secrets(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "secret")
    assert "API_TOKEN" not in worker_process.environment()


def test_a_worker_that_cannot_start_is_an_error_that_says_why():
    worker = WorkerProcess("tests.build.no_such_module", "echoes", cpu_s=1, memory_mb=256)
    with pytest.raises(WorkerUnavailable, match="that echoes does not start") as error:
        worker.ask("")
    assert "tests.build.no_such_module" in error.value.hint


def test_modules_are_found_below_a_folder_of_any_name(tmp_path, monkeypatch):
    folder = tmp_path / "a:b;c 'd\" $e ü\n"
    folder.mkdir()
    code = "from tts.base.worker_process import serve\nserve(lambda: lambda said: said)\n"
    (folder / "below_it.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    worker = WorkerProcess("below_it", "echoes", cpu_s=5, memory_mb=256)
    assert worker.ask("here").content == "here"
    worker.reap()


def test_without_file_descriptors_it_says_so():
    worker = WorkerProcess("tests.base.echo_worker", "echoes", cpu_s=1, memory_mb=256)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(WorkerUnavailable, match="does not start: Too many open files"):
            worker.ask("")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_stopped_worker_answers_nothing(worker):
    worker.ask("")
    worker.stop()
    with pytest.raises(RuntimeError, match="closed"):
        worker.ask("")


def test_ctrl_c_of_a_terminal_does_not_reach_the_worker(worker):
    worker.ask("")
    pid = worker.pid
    assert os.getsid(pid) != os.getsid(0)
    os.kill(pid, signal.SIGINT)
    assert worker.ask("still there").content == "still there"
    assert worker.pid == pid


def test_a_worker_ends_with_its_input():
    done = subprocess.run(
        WorkerProcess("tests.base.echo_worker", "echoes", cpu_s=1.0, memory_mb=256)._command,
        input=b"",
        capture_output=True,
        check=True,
        env=worker_process.environment(),
    )
    assert json.loads(done.stdout) == [0, 0.0, None]
