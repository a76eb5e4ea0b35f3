"""The whole way: tiny engines, built and served as a user's would be."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.engines.conftest import write_checkpoint

from tts.base import paths
from tts.base.errors import BuildError, ServerError
from tts.build.builder import build_engines
from tts.build.spec import Deployment
from tts.serving.repository.model_configs import iteration_logs
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
