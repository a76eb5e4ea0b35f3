"""Servers of target llmapi that do not start, and models that die, in a real Triton server."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.engines.llmapi_standin import Misbehave

from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.server.start import RunningServer, start_server

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("tensorrt_llm")]


@pytest.fixture(autouse=True)
def behave(misbehave: Misbehave) -> Iterator[None]:
    yield
    misbehave()


def models_of(server: RunningServer) -> list[psutil.Process]:
    children = psutil.Process(server.state.server.pid).children(recursive=True)
    return [child for child in children if "python_backend_stub" in " ".join(child.cmdline())]


def noticed(server: RunningServer) -> str:
    """What the check of a running server says, as soon as it says anything."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            server.check()
        except ServerError as error:
            return error.message
        time.sleep(0.05)
    return ""


@pytest.mark.slow  # two more models
def test_replicas_see_their_own_gpus_and_both_serve(llmapi_pair: Deployment):
    placed = llmapi_pair.generator.placement.model_copy(update={"gpus": ((1,), (3,))})
    generator = llmapi_pair.generator.model_copy(update={"tensorrt": placed})
    with start_server(llmapi_pair.model_copy(update={"generator": generator})) as server:
        assert len(models_of(server)) == 4  # prm_score and prm_engine have one each
        log = Path(server.log).read_text()
    assert sorted(re.findall(r"stand-in on GPUs (\S+):", log)) == ["0", "1", "3"]


def models_that_ask_for_the_sampler_that_keeps_seeds(server: RunningServer) -> int:
    """Only the generator may: the verifier's logits would be lost."""
    log = Path(server.log).read_text()
    asked = [line for line in log.splitlines() if "'sampler_type': 'TRTLLMSampler'" in line]
    assert all("'gather_generation_logits': False" in line for line in asked)
    return len(asked)


@pytest.mark.slow
def test_a_killed_model_is_noticed_and_leaves_nothing(
    llmapi_pair: Deployment, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TTS_STANDIN_VERSION", "1.2.1")  # its default sampler loses seeds
    with start_server(llmapi_pair) as server:
        assert models_that_ask_for_the_sampler_that_keeps_seeds(server) == 1
        stubs = models_of(server)
        (generator,) = [stub for stub in stubs if "/generator/1/" in " ".join(stub.cmdline())]
        os.kill(generator.pid, signal.SIGKILL)
        assert noticed(server)
    assert not any(stub.is_running() for stub in stubs)


@pytest.mark.slow  # a killed model is noticed by default
def test_a_model_whose_engine_dies_ends_and_is_noticed(
    llmapi_pair: Deployment, misbehave: Misbehave, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TTS_STANDIN_VERSION", "1.3.0rc26")  # has it no longer
    with start_server(llmapi_pair) as server:
        assert models_that_ask_for_the_sampler_that_keeps_seeds(server) == 0
        misbehave(dead=True)
        assert noticed(server)
        assert "the engine has died" in Path(server.log).read_text()


@pytest.mark.slow
def test_a_model_that_cannot_be_opened_is_said_with_the_reason(
    llmapi_pair: Deployment, misbehave: Misbehave
):
    misbehave(refuse_to_load="CUDA out of memory")
    with pytest.raises(ServerError) as failed:
        start_server(llmapi_pair)
    assert "memory" in failed.value.message


@pytest.mark.slow  # a start each for a sentence: lint says it before
def test_a_version_that_is_too_old_is_refused_when_the_model_loads(
    llmapi_pair: Deployment, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TTS_STANDIN_VERSION", "1.1.0")
    with pytest.raises(ServerError, match=r"TensorRT-LLM 1\.1\.0 is older than 1\.2\.0"):
        start_server(llmapi_pair)
