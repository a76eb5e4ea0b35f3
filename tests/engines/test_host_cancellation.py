"""Cancelling requests of the engine host: by call, by polling, without harm to the prefix cache."""

import threading

import pytest
from tests.engines.host_requests import Stepping, sampled

from tts.engines import engine_host


def test_cancelling_ends_running_and_waiting_requests_and_frees_their_blocks(open_host):
    runner = open_host(max_active=1)
    started, ended = threading.Event(), threading.Event()
    replies = {}

    def on_response(name):
        def collect(response):
            replies[name] = response
            started.set()
            if len([r for r in replies.values() if r.final]) == 2:
                ended.set()

        return collect

    running = runner.host.submit(sampled(n=200, streaming=True), on_response("running"))
    waiting = runner.host.submit(sampled(n=200), on_response("waiting"))
    assert started.wait(10)
    runner.host.cancel(waiting)
    runner.host.cancel(running)
    runner.host.cancel(running)  # once more does no harm
    assert ended.wait(10)
    assert replies["running"].finish_reason == replies["waiting"].finish_reason == "cancelled"
    assert replies["waiting"].token_ids == []
    assert len(runner.run(sampled(n=5))[0].token_ids) == 5
    assert runner.at_rest()


@pytest.mark.parametrize("steps", range(5))
def test_a_request_cancelled_inside_its_prompt_leaves_no_wrong_prefix(open_host, steps):
    # 60 tokens in steps of 24: some prompt is half computed whenever the cancellation comes
    runner = open_host(max_num_tokens=24)
    host = runner.host
    requests = [sampled(seed, n=8, length=60) for seed in range(3)]
    gate, ended = threading.Event(), threading.Semaphore(0)
    host.call(gate.wait)
    tickets = [host.submit(r, lambda response: ended.release()) for r in requests]
    step, taken = host._pipeline.step, []

    def cancel_after_some_steps():
        if len(taken) == steps:
            for ticket in tickets:
                host._cancel(ticket)
        taken.append(None)
        step()

    host._pipeline = Stepping(host._pipeline, cancel_after_some_steps)
    gate.set()
    for _ in tickets:
        assert ended.acquire(timeout=10)
    assert runner.at_rest()
    fresh = open_host(max_num_tokens=24)
    assert runner.run(*requests) == fresh.run(*requests)


def test_a_polled_cancellation_ends_the_request_with_what_it_has(generator):
    cancelled, done = threading.Event(), threading.Event()
    replies = []

    def on_response(response):
        replies.append(response)
        cancelled.set()
        if response.final:
            done.set()

    generator.host.submit(sampled(n=200, streaming=True), on_response, cancelled.is_set)
    assert done.wait(10)
    assert replies[-1].finish_reason == "cancelled"
    assert sum(len(reply.token_ids) for reply in replies) < 200


def test_a_request_is_not_asked_for_cancellation_before_its_period_is_over(generator, monkeypatch):
    asked, done = [], threading.Event()
    generator.host._cancel_check_s = 3600.0
    generator.host.submit(sampled(n=20), lambda _: done.set(), lambda: bool(asked.append(1)))
    assert done.wait(10)
    assert not asked
    generator.host._cancel_check_s = 0.0
    monkeypatch.setattr("tts.engines.engine_host.POLLING_SHARE", 1e9)  # as often as it likes
    generator.host._next_poll = 0.0  # an earlier test's slow poll may have put it off
    done.clear()
    generator.host.submit(sampled(n=20), lambda _: done.set(), lambda: bool(asked.append(1)))
    assert done.wait(10)
    assert len(asked) >= 19, "asked after every step that did not end it"


def test_asking_for_cancellation_takes_a_small_share_of_the_time(generator, monkeypatch):
    asked, done = [], threading.Event()
    monkeypatch.setattr("tts.engines.engine_host.POLLING_SHARE", 1e-9)
    generator.host._cancel_check_s = 0.0
    generator.host.submit(sampled(n=20), lambda _: done.set(), lambda: bool(asked.append(1)))
    assert done.wait(10)
    assert len(asked) <= 1, "the first answer took its share for years to come"


@pytest.mark.parametrize(
    "bound", [("MAX_WAITING", 2), ("MAX_WAITING_BYTES", 2 * sampled(n=5).bytes_waiting)]
)
def test_what_waits_is_bounded_and_the_rest_is_told_to_come_later(open_host, monkeypatch, bound):
    monkeypatch.setattr(engine_host, *bound)
    runner = open_host(max_active=1)
    gate, ended = threading.Event(), threading.Semaphore(0)
    responses = []

    def on_response(response):
        responses.append(response)
        ended.release()

    runner.host.call(gate.wait)  # so that all are accepted before the first is admitted
    for seed in range(5):
        runner.host.submit(sampled(seed, n=5), on_response)
    gate.set()
    for _ in range(5):
        assert ended.acquire(timeout=10)
    refused = [response for response in responses if response.error]
    assert len(refused) == 3
    assert all("2 requests wait for this engine" in response.error for response in refused)
    assert runner.run(sampled(n=5))[0].error is None, "nothing waits any more"
    assert runner.at_rest()
