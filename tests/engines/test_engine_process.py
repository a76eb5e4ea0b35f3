"""An engine in a process of its own answers as one in this process does, and neither outlives;
when it is asked whether requests were cancelled.
"""

import ctypes
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.conftest import Runner
from tests.engines.host_requests import sampled

from tts.base import paths
from tts.base.errors import EngineError
from tts.engines import engine_client, engine_messages, engine_process, engine_thread
from tts.engines.engine_messages import (
    Commands,
    FromEngine,
    MessageReader,
    Open,
    Submit,
    encode,
)
from tts.engines.engine_process import EngineConnection
from tts.engines.engine_thread import POLLING_SHARE, Cancellations, EngineThread
from tts.engines.generate_request import EngineLimits, GenerateRequest
from tts.engines.responses import Response, unavailable
from tts.engines.statistics import Statistics
from tts.engines.wire import Failure

LIMITS = EngineLimits(
    vocab_size=128, max_seq_len=256, max_num_tokens=128, block_size=32, blocks=64, max_active=8
)


def opening(pair, iteration_log: Path | None = None) -> Open:
    folder = paths.engine_dir(pair.name, "generator")
    return Open(folder, LIMITS, 1, 0.01, iteration_log, None)


class Client(Runner):
    """An EngineThread, and what it has told."""

    def __init__(self, opening: Open) -> None:
        self.statistics, self.died = queue.SimpleQueue(), threading.Event()
        self.host = EngineThread(
            opening,
            cancel_check_s=0.0,
            on_statistics=self.statistics.put,
            on_death=self.died.set,
        )

    def running(self) -> tuple[int, queue.SimpleQueue[Response]]:
        """A long request that runs: its ticket, and where its further responses come."""
        replies: queue.SimpleQueue[Response] = queue.SimpleQueue()
        ticket = self.host.submit(sampled(n=200, streaming=True), replies.put)
        assert not replies.get(timeout=60).final
        return ticket, replies

    def comes_to_rest(self) -> bool:
        """Whether the engine says, in time, that it holds nothing."""
        while True:
            now = self.statistics.get(timeout=60)
            if now.active == now.blocks_used == now.blocks_reserved == 0:
                return True


def last(replies: queue.SimpleQueue[Response]) -> Response:
    while not (response := replies.get(timeout=60)).final:
        pass
    return response


@pytest.fixture(scope="module")
def client(pair, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "iterations.jsonl"
    client = Client(opening(pair, log))
    yield client
    process = psutil.Process(client.host.pid)
    client.host.close()
    assert not process.is_running()
    assert not client.died.is_set(), "it was asked to end"
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["active"] == 0
    assert last["requests_total"] > 0


def test_answers_are_those_of_an_engine_in_this_process(client, generator):
    requests = [sampled(seed, n=20, return_log_probs=True) for seed in range(12)]
    assert client.run(*requests) == generator.run(*requests)
    streaming = sampled(3, n=12, streaming=True)
    assert client.replies(streaming) == generator.replies(streaming)
    assert client.comes_to_rest()


def test_an_engine_that_runs_short_of_memory_ends_rather_than_compute_wrongly(pair, generator):
    short = Client(opening(pair))
    try:
        process = psutil.Process(short.host.pid)
        short.run(sampled(1))
        used = process.memory_info().vms
        process.rlimit(psutil.RLIMIT_AS, (used, used))  # room for no further kernel
        requests = [sampled(seed, n=5, length=20 + 7 * seed) for seed in range(9)]
        for given, right in zip(short.run(*requests), generator.run(*requests), strict=True):
            assert given.error or given == right
        assert short.died.wait(10)
    finally:
        short.host.close()


def test_a_polled_cancellation_ends_the_request_with_what_it_has(client):
    cancelled, done, replies = threading.Event(), threading.Event(), []

    def on_response(response):
        replies.append(response)
        cancelled.set()
        if response.final:
            done.set()

    client.host.submit(sampled(n=200, streaming=True), on_response, cancelled.is_set)
    assert done.wait(10)
    assert replies[-1].finish_reason == "cancelled"
    assert sum(len(reply.token_ids) for reply in replies) < 200
    assert client.comes_to_rest()


def test_a_cold_request_is_refused_while_another_one_runs(client):
    cold = queue.SimpleQueue()
    ticket, _ = client.running()
    client.host.submit(sampled(n=2), cold.put, cold=True)
    assert cold.get(timeout=60).failure is Failure.IN_USE
    client.host.cancel(ticket)
    for _ in range(200):  # what is cancelled holds its blocks until the next step
        client.host.submit(sampled(n=2), cold.put, cold=True)
        answer = cold.get(timeout=60)
        if answer.failure is not Failure.IN_USE:
            break
        time.sleep(0.02)
    assert len(answer.token_ids) == 2


def test_functions_are_called_in_the_thread_that_answers_and_may_fail(client):
    threads = queue.SimpleQueue()
    client.host.call(lambda: 1 / 0)
    client.host.call(lambda: threads.put(threading.current_thread().name))
    client.host.submit(sampled(n=1), lambda _: threads.put(threading.current_thread().name))
    assert threads.get(timeout=60) == threads.get(timeout=60) == "answers"


def test_a_killed_engine_fails_its_requests_with_a_sentence_and_is_reported(pair, caplog):
    client = Client(opening(pair))
    _, replies = client.running()
    os.kill(client.host.pid, signal.SIGKILL)
    assert last(replies) == unavailable("the engine's process was killed by SIGKILL")
    assert client.died.wait(10)
    assert f"the engine's process was killed by SIGKILL (PID {client.host.pid});" in caplog.text
    client.host.close()
    with pytest.raises(EngineError, match="closed"):
        client.host.submit(sampled(n=1), replies.put)


def test_closing_fails_what_is_left(pair):
    client = Client(opening(pair))
    _, replies = client.running()
    client.host.close()
    assert last(replies) == unavailable("the engine is shutting down")


def test_an_engine_that_does_not_open_says_why(pair, tmp_path, monkeypatch):
    elsewhere = Open(tmp_path, LIMITS, 1, 0.01, None, None)
    with pytest.raises(EngineError, match=str(tmp_path)):
        EngineThread(elsewhere)
    monkeypatch.setattr(engine_client, "_CODE", "raise SystemExit(3)")
    with pytest.raises(EngineError, match=rf"engine in {tmp_path} ended with exit status 3"):
        EngineThread(elsewhere)


def test_an_engine_ends_with_the_process_that_opened_it_even_in_a_step(pair, tmp_path):
    script = tmp_path / "open.py"
    script.write_text(
        "import sys, time\n"
        "from tts.engines.engine_thread import EngineThread\n"
        "from tts.engines.engine_messages import Open\n"
        "from tests.engines.host_requests import sampled\n"
        "from tests.engines.test_engine_process import LIMITS\n"
        "from pathlib import Path\n"
        "client = EngineThread(Open(Path(sys.argv[1]), LIMITS, 1, 0.01, None, None))\n"
        "begun = lambda response: print(client.pid, flush=True)\n"
        "client.submit(sampled(n=200, streaming=True), begun)\n"
        "time.sleep(60)\n"
    )
    folder = paths.engine_dir(pair.name, "generator")
    command = [sys.executable, str(script), str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        engine = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert not psutil.wait_procs([engine], timeout=60)[1]


def test_ctrl_c_while_an_engine_opens_ends_its_process(tmp_path, monkeypatch):
    class Interrupted(Future):
        def result(self, timeout=None):
            while not (started := set(psutil.Process().children()) - before):
                time.sleep(0.01)
            processes.extend(started)
            raise KeyboardInterrupt

    before, processes = set(psutil.Process().children()), []
    monkeypatch.setattr(engine_client, "_CODE", "import time; time.sleep(60)")
    monkeypatch.setattr(engine_thread, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        EngineThread(Open(tmp_path, LIMITS, 1, 0.01, None, None))
    assert processes
    assert not any(process.is_running() for process in processes)


@contextmanager
def connected(accept=None):
    """Both ends of an engine's connection, the other's first; `accept` takes the requests."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = EngineConnection(ours)
        connection._asked = Commands(SimpleNamespace(accept=accept), connection._answer)
        yield theirs, connection


def test_an_engine_reads_on_while_nobody_takes_its_answers():
    def echo(ticket, request, on_response, *, cold):
        on_response(Response([7] * 100_000, finish_reason="length"))

    with connected(echo) as (theirs, connection):
        for ticket in range(50):
            theirs.sendall(encode(Submit(ticket, sampled(n=1), cold=False)))
            while True:
                try:
                    connection.get(False, None)()
                    break
                except queue.Empty:
                    pass
        taking, tickets = MessageReader(theirs, FromEngine), []
        sending = threading.Thread(target=connection.finish)
        sending.start()
        while len(tickets) < 50:
            tickets += [ticket for report in taking.take() for ticket, _ in report.responses]
        sending.join()
        assert tickets == list(range(50))


def test_all_that_has_come_in_is_taken_before_a_step(monkeypatch):
    monkeypatch.setattr(engine_messages, "_RECEIVE_BYTES", 1000)  # a part of a request
    accepted = []
    with connected(lambda ticket, *_, cold: accepted.append(ticket)) as (theirs, connection):
        prompt = GenerateRequest(np.zeros(300, np.int64), 1)
        for ticket in range(5):
            theirs.sendall(encode(Submit(ticket, prompt, cold=False)))
        connection.get(False, None)()
        while not connection.empty():
            connection.get(True, None)()
        assert accepted == list(range(5))


def test_statistics_wait_for_an_answer_but_not_longer_than_a_second():
    with connected() as (theirs, connection):
        reader = MessageReader(theirs, FromEngine)
        connection._may_wait = 256

        def tells(monotonic):
            connection.publish(Statistics(monotonic=monotonic))
            with pytest.raises(queue.Empty):
                connection.get(False, None)
            theirs.setblocking(False)
            try:
                return [each.monotonic for report in reader.take() for each in report.statistics]
            except BlockingIOError:
                return []

        assert tells(10.0) == tells(10.9) == []
        assert tells(11.1) == [10.0, 10.9, 11.1]


class Polls(Cancellations):
    """On a clock that moves when it is told to; what was asked, and when."""

    def __init__(self, period_s=0.0):
        super().__init__(period_s, lambda: self.now)
        self.now, self.asked = 0.0, []

    def put(self, name, *answers, takes=0.0):
        """A question with these answers, of which the last stays, each of which takes a while."""
        left = list(answers) or [False]

        def ask():
            self.now += takes
            self.asked.append((name, self.now))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.add(name, ask)


def test_a_request_is_not_asked_for_before_its_period_is_over():
    polls = Polls(5.0)
    assert polls.due_s() is None
    polls.put(1)
    assert polls.due_s() == 5.0
    assert polls.ask() is None
    assert not polls.asked
    polls.now = 5.0
    assert polls.due_s() == 0.0
    assert polls.ask() is None
    assert polls.asked == [(1, 5.0)]
    assert polls.due_s() == 5.0


def test_a_cancelled_request_is_named_once_and_asked_for_no_more():
    polls = Polls()
    polls.put(7, True)
    assert polls.ask() == 7
    assert polls.ask() is polls.due_s() is None
    assert len(polls.asked) == 1


def test_a_request_that_was_answered_is_asked_for_no_more():
    polls = Polls()
    polls.put(1)
    polls.discard(1)
    polls.discard(1)
    assert polls.ask() is None
    assert not polls.asked


def test_slow_questions_take_a_small_share_of_the_time():
    polls = Polls()
    polls.put(1, takes=1.0)
    polls.ask()
    assert polls.due_s() == pytest.approx(1 / POLLING_SHARE)
    assert polls.ask() is None
    assert len(polls.asked) == 1


@given(st.integers(1, 20), st.floats(0.01, 10), st.floats(0, 0.1))
def test_every_request_has_its_turn_before_one_is_asked_for_again(count, period, takes):
    polls = Polls(period)
    for name in range(count):
        polls.put(name, takes=takes)
    while len(polls.asked) < 3 * count:
        polls.now += polls.due_s()
        assert polls.ask() is None
    assert [name for name, _ in polls.asked] == 3 * list(range(count))
    for (_, at), (_, again) in zip(polls.asked, polls.asked[count:], strict=False):
        assert again - at >= period - 1e-6


def test_a_question_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture):
    polls = Polls(1.0)
    polls.put(7, RuntimeError("the client is gone"), True)
    polls.now = 1.0
    assert polls.ask() is None
    assert "a question to Triton or to the engine failed" in caplog.text
    polls.now = 2.0
    assert polls.ask() == 7


def test_an_engine_has_a_longer_slice_than_what_passes_its_messages_on():
    def slice_ns():
        attributes = ctypes.create_string_buffer(48)
        ctypes.CDLL(None).syscall(315, 0, attributes, 48, 0)  # sched_getattr
        return struct.unpack("=IIQiIQQQ", attributes.raw)[5]

    def compare():
        slices.append(slice_ns())
        engine_process._let_others_first()
        slices.append(slice_ns())

    slices = []
    thread = threading.Thread(target=compare)  # a slice is a thread's
    thread.start()
    thread.join()
    if not slices[0]:
        pytest.skip("Linux before 6.12 has no slices")
    assert 0 < slices[0] < slices[1]
