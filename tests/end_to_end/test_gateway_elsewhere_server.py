"""A gateway as its manifests run it: of engines their manifests, checkpoints without weights."""

import json
import shutil
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from tests.end_to_end.commands import quiet
from tests.end_to_end.gateways import gateway
from tests.end_to_end.proxy import Proxy

from tts.build import paths
from tts.build.spec import load_deployment
from tts.serving.repository.gateway import deployment_text, engine_manifests

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (paths.deployments_dir().parent / "checkpoints" / "demo-verifier").is_dir(),
        reason="the demo checkpoints are not here",
    ),
]


def without_weights(folder):
    """The demo pair's deployment with checkpoints in `folder`, and its manifests in `folder`."""
    demo = load_deployment("demo")
    specs = {}
    for role, spec in demo.engines().items():
        shutil.copytree(spec.checkpoint, folder / role, ignore=lambda *_: ["model.safetensors"])
        specs[role] = spec.model_copy(update={"checkpoint": folder / role})
    for role, file in engine_manifests(demo).items():
        place = folder / "built" / "demo" / role / file.name
        place.parent.mkdir(parents=True)
        shutil.copyfile(file, place)
    return demo.model_copy(update=specs)


@pytest.mark.slow
def test_a_gateway_elsewhere_needs_neither_engines_nor_weights(server, tmp_path, monkeypatch):
    running, home = server
    monkeypatch.setenv("TTS_HOME", str(home))
    with closing(Proxy(Path(running.addresses.socket))) as proxy:
        port = proxy.port
        deployment = without_weights(tmp_path)
        file = tmp_path / "deployment.yaml"
        file.write_text(deployment_text(deployment, "127.0.0.1", port))
        options = ("--endpoint", f"dns:localhost:{port}")
        with quiet(tmp_path) as tts, gateway(tts, *options, deployment=file) as address:
            body = {
                "model": "demo:beam-search",
                "messages": [{"role": "user", "content": "Compute 12 + 30."}],
                "tts": {"n": 4},
            }
            request = urllib.request.Request(
                f"{address}/v1/chat/completions",
                json.dumps(body).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.load(answer)["tts"]["answer"] == "42"
            with urllib.request.urlopen(f"{address}/ready", timeout=60) as answer:
                assert answer.status == 200
