"""Failures inside the engine host, and its end."""

import threading

import pytest
from tests.engines.engine_host import EngineHost
from tests.engines.host_requests import Stepping, sampled

from tts.base import paths
from tts.base.errors import EngineError
from tts.build.manifest import read_engine_config
from tts.build.openvino import runtime as openvino_runtime
from tts.engines.generate_request import EngineLimits
from tts.engines.responses import unavailable


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
