"""The host of an `LLM`: its thread, its end, its limits. The engine is scripted here."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tts.build.errors import EngineError
from tts.engines.generate_request import GenerateRequest
from tts.engines.llmapi import host as llmapi_host
from tts.engines.llmapi.host import LlmHost
from tts.engines.responses import Response

PATIENCE_S = 20


class Result:
    """A result that ends when the test says so, or when it is aborted."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self.finished = False
        self.outputs = [
            SimpleNamespace(token_ids=[], finish_reason=None, logprobs=[], generation_logits=None)
        ]

    def abort(self) -> None:
        self.outputs[0].finish_reason = "cancelled"
        self.event.set()

    def finish(self) -> None:
        self.outputs[0].token_ids, self.outputs[0].finish_reason = [5], "length"
        self.loop.call_soon_threadsafe(self.event.set)

    def __aiter__(self) -> "Result":
        return self

    async def __anext__(self) -> "Result":
        if self.finished:
            raise StopAsyncIteration
        await self.event.wait()
        self.finished = True
        return self


class Llm:
    def __init__(self) -> None:
        self.results: list[Result] = []
        self.made = threading.Semaphore(0)
        self.healthy = True
        self.closed = False

    def generate_async(self, inputs: list[int], params: Any, streaming: bool) -> Result:
        self.results.append(Result())
        self.made.release()
        return self.results[-1]

    def shutdown(self) -> None:
        self.closed = True

    def _check_health(self) -> bool:
        return self.healthy


class Answers:
    """The responses to one request."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.done = threading.Event()

    def __call__(self, response: Response) -> None:
        self.responses.append(response)
        if response.final:
            self.done.set()

    def last(self) -> Response:
        assert self.done.wait(PATIENCE_S), "no final response"
        return self.responses[-1]


Open = Callable[..., tuple[LlmHost, Llm]]


@pytest.fixture
def open_llm() -> Iterator[Open]:
    hosts: list[LlmHost] = []

    def make(**options: Any) -> tuple[LlmHost, Llm]:
        llm = Llm()
        host = LlmHost(llm, SimpleNamespace, one_sampler=False, cancel_check_s=0.001, **options)
        hosts.append(host)
        return host, llm

    yield make
    for host in hosts:
        if host._thread.is_alive():
            host.close()


REQUEST = GenerateRequest(np.arange(4), 1)


def in_thread(host: LlmHost, function: Callable[[], Any]) -> Any:
    """Run a function in the host's thread and wait for what it returns."""
    got: list[Any] = []
    done = threading.Event()

    def call() -> None:
        got.append(function())
        done.set()

    host.call(call)
    assert done.wait(PATIENCE_S)
    return got[0]


def test_an_answer_comes_when_the_engine_has_finished(open_llm: Open):
    host, llm = open_llm()
    answers = Answers()
    host.submit(REQUEST, answers)
    assert llm.made.acquire(timeout=PATIENCE_S)
    assert answers.responses == []
    llm.results[0].finish()
    assert answers.last() == Response([5], finish_reason="length")


def test_a_client_that_has_gone_aborts_its_request(open_llm: Open):
    host, llm = open_llm()
    answers, gone = Answers(), threading.Event()
    host.submit(REQUEST, answers, gone.is_set)
    assert llm.made.acquire(timeout=PATIENCE_S)
    gone.set()
    assert answers.last().finish_reason == "cancelled"
    assert llm.results[0].outputs[0].finish_reason == "cancelled"


def test_a_request_cancelled_before_it_began_never_reaches_the_engine(open_llm: Open):
    host, llm = open_llm()
    answers = Answers()

    def both() -> None:
        host.cancel(host.submit(REQUEST, answers))

    in_thread(host, both)
    assert answers.last().finish_reason == "cancelled"
    assert in_thread(host, lambda: len(llm.results)) == 0


def test_cancelling_what_is_answered_or_unknown_does_nothing(open_llm: Open):
    host, llm = open_llm()
    answers = Answers()
    ticket = host.submit(REQUEST, answers)
    assert llm.made.acquire(timeout=PATIENCE_S)
    llm.results[0].finish()
    answers.last()
    host.cancel(ticket)
    host.cancel(999)
    in_thread(host, lambda: None)
    assert len(answers.responses) == 1


def test_more_requests_than_it_may_hold_are_refused(
    open_llm: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(llmapi_host, "MAX_REQUESTS", 2)
    host, _ = open_llm()
    many = [Answers() for _ in range(3)]
    for answers in many:
        host.submit(REQUEST, answers)
    assert "2 requests are in this engine" in str(many[2].last().error)
    assert not many[0].responses


def test_the_end_answers_everyone_and_closes_the_engine(open_llm: Open):
    host, llm = open_llm()
    waiting = [Answers() for _ in range(3)]
    for answers in waiting:
        host.submit(REQUEST, answers)
    for _ in waiting:
        assert llm.made.acquire(timeout=PATIENCE_S)
    host.close()
    assert [answers.last().error for answers in waiting] == ["the engine is shutting down"] * 3
    assert llm.closed
    with pytest.raises(EngineError, match="closed"):
        host.submit(REQUEST, Answers())


def test_a_dead_engine_is_noticed(open_llm: Open, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(llmapi_host, "HEALTH_CHECK_S", 0.001)
    died = threading.Event()
    _, llm = open_llm(on_death=died.set)
    assert not died.is_set()
    llm.healthy = False
    assert died.wait(PATIENCE_S)


def test_a_question_that_fails_ends_no_polling(open_llm: Open):
    host, llm = open_llm()
    broken, gone = threading.Event(), threading.Event()

    def fails() -> bool:
        broken.set()
        raise RuntimeError("injected")

    host.submit(REQUEST, Answers(), fails)
    answers = Answers()
    host.submit(REQUEST, answers, gone.is_set)
    for _ in range(2):
        assert llm.made.acquire(timeout=PATIENCE_S)
    assert broken.wait(PATIENCE_S)
    gone.set()
    assert answers.last().finish_reason == "cancelled"


def test_an_engine_whose_health_cannot_be_asked_is_dead(
    open_llm: Open, monkeypatch: pytest.MonkeyPatch
):
    def fails(llm: Llm) -> bool:
        raise RuntimeError("injected")

    monkeypatch.setattr(Llm, "_check_health", fails)
    died = threading.Event()
    open_llm(on_death=died.set)
    assert died.wait(PATIENCE_S)


def test_a_callback_that_fails_harms_no_other_request(open_llm: Open):
    host, llm = open_llm()

    def broken(response: Response) -> None:
        raise ValueError("injected")

    answers = Answers()
    host.submit(REQUEST, broken)
    host.submit(REQUEST, answers)
    for _ in range(2):
        assert llm.made.acquire(timeout=PATIENCE_S)
    for result in llm.results:
        result.finish()
    assert answers.last().finish_reason == "length"


def test_how_many_requests_the_engine_has_is_told(open_llm: Open):
    seen: set[int] = set()
    two = threading.Event()

    def told(active: int) -> None:
        seen.add(active)
        if active == 2:
            two.set()

    host, _ = open_llm(on_active=told, statistics_s=0.001)
    host.submit(REQUEST, Answers())
    host.submit(REQUEST, Answers())
    assert two.wait(PATIENCE_S)
