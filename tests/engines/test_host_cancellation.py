"""Cancelling requests of an engine, without harm to the prefix cache, and refusing too many."""

import threading

import pytest
from tests.engines.host_requests import Stepping, sampled

from tts.engines import engine


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
    runner.host.stop(waiting)
    runner.host.stop(running)
    runner.host.stop(running)  # once more does no harm
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
                host.cancel(ticket)
        taken.append(None)
        step()

    host._pipeline = Stepping(host._pipeline, cancel_after_some_steps)
    gate.set()
    for _ in tickets:
        assert ended.acquire(timeout=10)
    assert runner.at_rest()
    fresh = open_host(max_num_tokens=24)
    assert runner.run(*requests) == fresh.run(*requests)


@pytest.mark.parametrize(
    "bound", [("MAX_WAITING", 2), ("MAX_WAITING_BYTES", 2 * sampled(n=5).bytes_waiting)]
)
def test_what_waits_is_bounded_and_the_rest_is_told_to_come_later(open_host, monkeypatch, bound):
    monkeypatch.setattr(engine, *bound)
    runner = open_host(max_active=1)
    gate = threading.Event()
    runner.host.call(gate.wait)  # so that all are accepted before the first is admitted
    threading.Timer(0.1, gate.set).start()
    responses = runner.run(*(sampled(seed, n=5) for seed in range(5)))
    refused = [response for response in responses if response.error]
    assert len(refused) == 3
    assert all("2 requests wait for this engine" in response.error for response in refused)
    assert runner.run(sampled(n=5))[0].error is None, "nothing waits any more"
    assert runner.at_rest()
