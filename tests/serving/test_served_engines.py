"""The whole way: tiny engines, built and served as a user's would be; one engine in both roles."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.conftest import write_tokenizer
from tests.engines.conftest import write_checkpoint

from tts.base import paths
from tts.base.errors import BuildError, ServerError
from tts.build.builder import build_engines
from tts.build.inputs import Inputs
from tts.build.spec import Deployment
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.streaming import OutputEnds
from tts.fleet.connecting import triton_connection
from tts.serving.repository import render as repository
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.model_configs import iteration_logs, model_configs
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_engines_that_were_built_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Deployment]
):
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    checkpoint = tmp_path / "checkpoint"
    write_checkpoint(checkpoint, 0)
    deployment = make("tiny", checkpoint=checkpoint, http_port="auto")
    with pytest.raises(BuildError, match="verifier engine of 'tiny' is not ready"):
        start_server(Triton(deployment))
    build_engines(deployment, verify=False, say=lambda line: None)
    with start_server(Triton(deployment)) as running:
        running.check()
        assert sorted(running.health.stubs.values()) == ["generator", "prm"]
        assert pod_probe(running.addresses.http_port) == ""
        for file in iteration_logs(deployment).values():
            while not file.read_text():  # written twice a second
                time.sleep(0.05)
        stubs = {model: stub.process() for stub, model in running.health.stubs.items()}
        (engine,) = stubs["generator"].children()
        os.kill(engine.pid, signal.SIGKILL)
        while stubs["generator"].status() != psutil.STATUS_ZOMBIE:  # a model ends with its engine
            time.sleep(0.05)
        with pytest.raises(ServerError, match="stub of model generator"):
            running.check()
        assert "/v2/models/" in pod_probe(running.addresses.http_port)
    for file in iteration_logs(deployment).values():  # the request that proved it ready
        assert json.loads(file.read_text().splitlines()[0])["requests_total"] == 1


def pod_probe(http_port: int) -> str:
    """What the probe of the Kubernetes and compose manifests says of a server; nothing if well."""
    probe = paths.templates_dir() / "deploy" / "probe.py"
    command = [sys.executable, "-I", "-S", str(probe), str(http_port), "generator", "prm"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


ENGINE = '''
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """Answers with its prompt, whose ids are the first logits as well."""

    def execute(self, requests):
        for request in requests:
            ids = pb.get_input_tensor_by_name(request, "input_ids").as_numpy()[0]
            logits = np.zeros(64, np.float32)
            logits[: len(ids)] = ids
            answer = {
                "output_ids": ids.astype(np.int32)[None, None],
                "sequence_length": np.array([[len(ids)]], np.int32),
                "generation_logits": logits[None, None, None],
            }
            asked = request.requested_output_names()
            tensors = [pb.Tensor(name, answer[name]) for name in asked if name in answer]
            request.get_response_sender().send(
                pb.InferenceResponse(tensors), flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            )
'''


@pytest.fixture
def shared(
    tensorrt: Callable[..., Deployment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """A deployment whose verifier is its generator, and the engine's stand-in among the models."""
    checkpoint = tmp_path / "checkpoint"
    write_tokenizer(checkpoint)
    given = tensorrt(checkpoint=checkpoint, http_port="auto").model_dump(exclude_unset=True)
    verifier = {"same_as": "generator", "in_flight_tokens": 8192}
    deployment = Deployment.model_validate(given | {"verifier": verifier})
    templates = tmp_path / "templates"
    shutil.copytree(paths.templates_dir(), templates)
    code = templates / "openvino" / "generator" / "1" / "model.py"
    code.write_text(ENGINE)
    monkeypatch.setattr(paths, "templates_dir", lambda: templates)

    def configs(served: Deployment, **_: object) -> dict[str, Any]:
        made = model_configs(deployment, digest=deployment_digest(served))
        made["generator"].backend = "python"
        return made

    monkeypatch.setattr(repository, "model_configs", configs)
    monkeypatch.setattr(repository, "require_current", lambda deployment: None)
    return deployment


def test_the_same_engine_writes_and_scores(shared: Deployment):
    here = shared.model_copy(update={"target": "openvino"})  # which needs no GPU to start
    labels = list(Inputs(shared).roles["verifier"].label_weights)
    prompt = np.zeros(max(labels) + 1, np.int32)
    prompt[labels] = 3, 1

    async def ask(address: str) -> None:
        async with triton_connection(shared, address) as connection:
            result = await connection.verifier().score(ScoreCall(prompt))
            assert result.score == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-6)
            for role in ("generator", "verifier"):
                writer = connection.generator(OutputEnds(0), role)
                call = GenerateCall(np.arange(5, dtype=np.int32), 5, 0, 0.0, 1.0, False)
                assert await writer.generate(call) == [0, 1, 2, 3, 4]

    with start_server(Triton(here)) as running:
        assert pod_probe(running.addresses.http_port) == ""
        asyncio.run(ask(running.addresses.grpc))
