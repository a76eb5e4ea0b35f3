"""The engine host in process, on a tiny random engine: answers, cancellations, failures."""

import json
import queue
import threading
import time

import numpy as np
import pytest
from msgspec.structs import replace
from tests.engines.engine_host import EngineHost
from tests.engines.host_requests import Stepping, prompt, sampled

from tts.base import paths
from tts.base.errors import EngineError
from tts.build.manifest import read_engine_config
from tts.build.openvino import runtime as openvino_runtime
from tts.engines import engine
from tts.engines.generate_request import EngineLimits, GenerateRequest
from tts.engines.responses import unavailable


def test_the_same_tokens_alone_batched_and_warm(open_host):
    requests = [sampled(seed) for seed in range(8)]
    cold = open_host()
    batched = [response.token_ids for response in cold.run(*requests)]
    warm = [cold.run(request)[0].token_ids for request in requests]
    alone = [open_host().run(request)[0].token_ids for request in requests[:3]]
    assert batched == warm
    assert batched[:3] == alone


def test_seeds_differ_in_every_bit_and_default_to_a_fixed_one(generator):
    base = sampled(0)
    seeds = [0, 1, 2**31, 2**32, 2**63, 2**64 - 1]
    outputs = {tuple(r.token_ids) for r in generator.run(*(replace(base, seed=s) for s in seeds))}
    assert len(outputs) == len(seeds)
    first, second = generator.run(base, base)
    assert first == second


def test_greedy_is_the_limit_of_every_way_to_ask_for_it(generator):
    base = GenerateRequest(prompt(), 10)
    ways = [base, replace(base, top_k=1), replace(base, top_p=0.9, temperature=0.0)]
    assert len({tuple(response.token_ids) for response in generator.run(*ways)}) == 1


def test_the_output_has_the_length_that_was_asked_for(generator):
    (response,) = generator.run(sampled(n=7))
    assert len(response.token_ids) == 7
    assert response.finish_reason == "length"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_output_ends_right_after_a_stop_word(generator, length):
    (full,) = generator.run(sampled())
    word = tuple(full.token_ids[5 : 5 + length])
    (response,) = generator.run(sampled(stop_words=((127, 126), word)))
    expected = next(
        full.token_ids[:end]
        for end in range(length, 25)
        if tuple(full.token_ids[end - length : end]) == word
    )
    assert response.token_ids == expected
    assert response.finish_reason == "stop"


def test_a_stop_word_does_not_reach_back_into_the_prompt(generator):
    (full,) = generator.run(sampled())
    across = (int(prompt()[-1]), full.token_ids[0])
    (response,) = generator.run(sampled(stop_words=(across,)))
    assert response.token_ids == full.token_ids


def test_the_end_id_is_not_part_of_the_output(generator):
    (full,) = generator.run(sampled(return_log_probs=True))
    end_id = full.token_ids[6]
    (response,) = generator.run(sampled(end_id=end_id, return_log_probs=True))
    assert response.token_ids == full.token_ids[: full.token_ids.index(end_id)]
    assert response.log_probs == full.log_probs[: len(response.token_ids)]
    assert response.finish_reason == "end_id"


def test_log_probs_are_those_of_the_raw_distribution(generator):
    # the likeliest token's, whatever the temperature made of the distribution
    greedy = GenerateRequest(prompt(), 1, return_log_probs=True)
    (raw,) = generator.run(greedy)
    (cold,) = generator.run(replace(greedy, top_p=1.0, temperature=0.01))
    assert cold.token_ids == raw.token_ids
    assert cold.log_probs == pytest.approx(raw.log_probs, abs=1e-5)
    assert raw.log_probs[0] < -0.01


def test_streaming_sends_each_token_once(generator):
    request = sampled(n=6, return_log_probs=True)
    (whole,) = generator.run(request)
    (parts,) = generator.replies(replace(request, streaming=True))
    assert [token for part in parts for token in part.token_ids] == whole.token_ids
    assert [part.final for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].log_probs == pytest.approx(whole.log_probs, abs=1e-5)  # cumulative
    assert len(parts) > 1


def test_scores_are_the_same_alone_batched_and_warm_and_sum_to_one(verifier, open_host):
    requests = [
        GenerateRequest(prompt(seed, 20 + seed), 1, return_generation_logits=True)
        for seed in range(20)
    ]
    batched = [response.label_logits for response in verifier.run(*requests)]
    warm = [verifier.run(request)[0].label_logits for request in requests]
    alone = [open_host("verifier").run(request)[0].label_logits for request in requests[:2]]
    assert np.allclose(batched, warm, atol=1e-5)
    assert np.allclose(batched[:2], alone, atol=1e-5)
    assert np.allclose(np.exp(batched).sum(axis=1), 1, atol=1e-6)


def test_a_verifier_answers_with_the_token_of_its_label(verifier):
    (response,) = verifier.run(GenerateRequest(prompt(), 1, return_generation_logits=True))
    winner = int(np.argmax(response.label_logits))
    assert response.token_ids == [(3, 4)[winner]]


def test_more_than_the_pool_holds_waits_and_finishes(open_host):
    small = open_host(blocks=8, max_active=64)
    requests = [sampled(seed, n=60) for seed in range(20)]  # 4 blocks each: two at a time
    responses = small.run(*requests)
    assert [len(response.token_ids) for response in responses] == [60] * 20
    assert small.run(requests[7])[0] == responses[7]


def test_a_request_larger_than_the_pool_is_refused_alone(open_host):
    small = open_host(blocks=2)
    refused, fine = small.run(sampled(n=60), sampled(n=5))
    assert "the pool has 2" in refused.error
    assert len(fine.token_ids) == 5


def test_a_host_at_rest_is_not_stepped_by_a_command(generator, monkeypatch):
    generator.run(sampled(n=2))
    while generator.host._recorder.rest_due_s() is not None:
        time.sleep(0.01)
    steps = []
    pipeline = generator.host._pipeline

    def step():
        steps.append(1)
        pipeline.step()

    monkeypatch.setattr(generator.host, "_pipeline", Stepping(pipeline, step))
    for _ in range(2):  # the second is taken only after whatever followed the first
        done = threading.Event()
        generator.host.call(done.set)
        assert done.wait(10)
    assert not steps


def test_the_iteration_log_adds_up(open_host, tmp_path):
    file = tmp_path / "log" / "iterations.jsonl"
    runner = open_host(iteration_log=file)
    runner.run(*(sampled(seed, n=10) for seed in range(4)))
    runner.host.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == list(range(1, len(lines) + 1))
    assert sum(line["context_tokens"] for line in lines) == 4 * 40
    # the first token of each request comes out of its prompt's last iteration
    assert sum(line["generation_requests"] for line in lines) == 4 * 9
    assert lines[-1]["output_tokens_total"] == 40
    assert max(line["blocks_used"] for line in lines) == 4 * 2


def test_a_reset_empties_the_prefix_cache_and_changes_no_output(open_host):
    """A prompt of 200 tokens takes two steps of at most 128, or one if most of it is known."""
    runner = open_host(kv_reuse=True)

    def steps_and_output():
        before = runner.host.statistics().iteration
        (response,) = runner.run(sampled(n=4, length=200))
        return runner.host.statistics().iteration - before, response.token_ids

    def reset():
        done = queue.SimpleQueue()
        runner.host.call(lambda: done.put(runner.host.reset_prefix_cache()))
        return done.get(timeout=60)

    cold, output = steps_and_output()
    assert steps_and_output() == (cold - 1, output)
    assert runner.at_rest()
    assert reset()
    assert steps_and_output() == (cold, output)


def test_cancelling_ends_running_and_waiting_requests_and_frees_their_blocks(open_host):
    runner = open_host(max_active=1, max_seq_len=4096, blocks=256)
    started, ended = threading.Event(), threading.Event()
    replies = {}

    def on_response(name):
        def collect(response):
            replies[name] = response
            started.set()
            if len([r for r in replies.values() if r.final]) == 2:
                ended.set()

        return collect

    running = runner.host.submit(sampled(n=4000, streaming=True), on_response("running"))
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
        assert ended.acquire(timeout=60)
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


def failing(pipeline):
    """A pipeline that fails at its first step with a request; the rest is the real one's."""

    def step():
        if pipeline.has_non_finished_requests():
            raise RuntimeError("injected")
        pipeline.step()

    return Stepping(pipeline, step)


def test_a_failing_step_fails_what_was_active_and_nothing_else(open_host):
    runner = open_host(max_active=2)
    reference = runner.run(*(sampled(seed) for seed in range(4)))
    host = runner.host
    gate = threading.Event()
    host.call(gate.wait)  # so that all four are in before the step that fails
    host.call(lambda: setattr(host, "_pipeline", failing(host._pipeline)))
    threading.Timer(0.1, gate.set).start()
    responses = runner.run(*(sampled(seed) for seed in range(4)))
    assert responses[:2] == [unavailable("the engine failed: injected")] * 2
    assert responses[2:] == reference[2:]
    assert runner.run(sampled(0))[0] == reference[0]
    assert runner.at_rest()


def test_an_engine_that_does_not_open_again_fails_requests_until_it_does(open_host):
    runner = open_host()
    host = runner.host
    reopen = host._open

    def fail():
        raise RuntimeError("still broken")

    host._open = fail
    host._pipeline = failing(host._pipeline)
    assert runner.run(sampled())[0].error == "the engine failed: injected"
    again = "the engine cannot be opened again: still broken"
    assert runner.run(sampled()) == [unavailable(again)]
    host._open = reopen
    assert runner.run(sampled())[0].error is None


def test_a_failing_callback_harms_nobody(generator):
    def fail(response):
        raise ValueError("the client's own fault")

    generator.host.submit(sampled(), fail)
    assert generator.run(sampled())[0].error is None


def test_the_end_fails_what_is_left(open_host):
    runner = open_host()
    replies = []
    runner.host.submit(sampled(n=200), replies.append)
    runner.host.close()
    assert replies == [unavailable("the engine is shutting down")]


def test_bf16_built_elsewhere_is_refused_where_the_cpu_cannot_serve_it(pair, monkeypatch):
    folder = paths.engine_dir(pair.name, "verifier")
    built = read_engine_config(folder).model_copy(update={"precision": "bf16"})
    limits = EngineLimits(128, 256, 128, 32, 64, 8, labels=2, writes=False)
    monkeypatch.setattr(openvino_runtime, "cpu_flags", lambda: {"avx2", "avx512f"})
    with pytest.raises(EngineError, match=r"verifier\.precision is 'bf16'.*no AVX512-BF16"):
        EngineHost(folder, built, limits)
