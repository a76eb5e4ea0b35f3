"""A gateway as its manifests run it: of engines their manifests, checkpoints without weights."""

import shutil
import socket

import pytest
from tests.end_to_end.commands import quiet
from tests.end_to_end.gateways import gateway, reply

from tts.build.spec import load_deployment
from tts.serving.repository.gateway import deployment_text, engine_manifests
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server


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
def test_a_gateway_elsewhere_needs_neither_engines_nor_weights(new_home, tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(new_home()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    demo = load_deployment("demo")
    served = demo.model_copy(update={"server": demo.server.model_copy(update={"grpc_port": port})})
    with start_server(Triton(served)):
        file = tmp_path / "deployment.yaml"
        file.write_text(deployment_text(without_weights(tmp_path), "127.0.0.1", port))
        options = ("--endpoint", f"dns:localhost:{port}")
        with quiet(tmp_path) as tts, gateway(tts, *options, deployment=file) as address:
            question = [{"role": "user", "content": "Compute 12 + 30."}]
            body = {"model": "demo:beam-search", "messages": question, "tts": {"n": 4}}
            assert reply(address, "/v1/chat/completions", body).json()["tts"]["answer"] == "42"
            assert reply(address, "/ready").status_code == 200
