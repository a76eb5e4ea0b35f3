"""Manifests of engines that are started: whom they start, in which order, and with what key."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.serving.started import DEMO, started_deployment

from tts.base.errors import ConfigError
from tts.build.spec import Deployment, load_deployment
from tts.serving.repository.engine_manifests import KEY, render_engine_manifests

TWO_GPUS = {"generator": {"gpus": (2,)}, "verifier": {"gpus": (5,)}}
Rendered = Callable[..., dict[str, Any]]


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rendered:
    """Renders a deployment; gives the documents of each file."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))

    def render(deployment: Deployment) -> dict[str, Any]:
        files = render_engine_manifests(deployment, tmp_path / "manifests")
        return {file.name: list(yaml.safe_load_all(file.read_text())) for file in files}

    return render


def pods_of(documents: list[Any]) -> list[Any]:
    return [each for each in documents if each["kind"] == "Deployment"]


def test_compose_starts_one_engine_after_the_other_and_the_gateway_last(rendered: Rendered):
    (compose,) = rendered(started_deployment(gpu="h100"))["compose.yaml"]
    services = compose["services"]
    assert services["generator"]["entrypoint"][:3] == ["vllm", "serve", str(DEMO)]
    assert "depends_on" not in services["generator"]
    assert services["verifier"]["depends_on"] == {"generator": {"condition": "service_healthy"}}
    assert services["gateway"]["depends_on"].keys() == {"generator", "verifier"}
    for role in ("generator", "verifier"):
        assert services[role]["environment"]["VLLM_API_KEY"].startswith(f"${{{KEY}:?")
        assert services[role]["image"].startswith("vllm/vllm-openai:v")
        assert services[role]["deploy"]["resources"]["reservations"]["devices"]
    assert "--endpoint" not in services["gateway"]["command"]


@pytest.mark.parametrize("changes", [{}, {"gpu": "h100"}, {"gpu": "h100", **TWO_GPUS}])
def test_manifests_fit_the_schemas_of_compose_and_kubernetes(rendered: Rendered, changes: dict):
    validate = pytest.importorskip("kubernetes_validate")
    jsonschema = pytest.importorskip("jsonschema")
    vendor = files(pytest.importorskip("check_jsonschema.builtin_schemas")) / "vendor"
    manifests = rendered(started_deployment(**changes))
    for resource in (*manifests["kubernetes.yaml"], *manifests["gateway.yaml"]):
        validate.validate(resource, validate.latest_version(), strict=True)
    jsonschema.validate(
        *manifests["compose.yaml"], json.loads((vendor / "compose-spec.json").read_text())
    )


def test_containers_run_their_own_program_whatever_is_here(rendered: Rendered):
    here = {"generator": {"executable": "/opt/llama-server"}}
    (compose,) = rendered(started_deployment(target="llama.cpp", **here))["compose.yaml"]
    for role in ("generator", "verifier"):
        assert compose["services"][role]["entrypoint"][0] == "/app/llama-server"
        assert "/dev/tcp/127.0.0.1/" in compose["services"][role]["healthcheck"]["test"][3]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ({}, (8000, 8001)),
        ({"generator": 9000}, (9000, 8001)),
        ({"verifier": 8000}, (8001, 8000)),
        ({"generator": 8001}, (8001, 8002)),
    ],
)
def test_the_gateway_asks_engines_where_the_manifests_have_them(
    rendered: Rendered, tmp_path: Path, ports: dict[str, int], expected: tuple[int, int]
):
    changes = {role: {"port": port} for role, port in ports.items()}
    rendered(
        started_deployment(
            **{**changes, "verifier": {"max_seq_len": 128, **changes.get("verifier", {})}}
        )
    )
    here = load_deployment(tmp_path / "manifests" / "deployment.yaml")
    assert here.target == "openai"
    urls = {role: spec.url for role, spec in here.remotes().items()}
    assert urls == {
        "generator": (f"http://generator:{expected[0]}",),
        "verifier": (f"http://verifier:{expected[1]}",),
    }
    assert here.verifier.max_seq_len == 128
    assert here.generator.api_key_env == KEY


@pytest.mark.parametrize(
    ("changes", "pods"),
    [
        ({"gpu": "h100"}, [("tts-pair-engines", 1)]),
        ({"gpu": "h100", **TWO_GPUS}, [("tts-pair-generator", 1), ("tts-pair-verifier", 1)]),
        ({}, [("tts-pair-generator", None), ("tts-pair-verifier", None)]),
    ],
)
def test_engines_on_one_gpu_are_one_pod(rendered: Rendered, changes: dict, pods: list):
    found = rendered(started_deployment(**changes))
    described = []
    for pod in pods_of(found["kubernetes.yaml"]):
        (container,) = pod["spec"]["template"]["spec"]["containers"]
        limits = container["resources"].get("limits", {})
        described.append((pod["metadata"]["name"], limits.get("nvidia.com/gpu")))
        for each in container["env"]:
            if each["name"] == "CUDA_VISIBLE_DEVICES":
                assert each["value"] == "0", "in a pod GPUs count from 0"
        assert container["startupProbe"]["httpGet"]["path"] == "/health"
    assert described == pods
    (gateway,) = pods_of(found["gateway.yaml"])
    (container,) = gateway["spec"]["template"]["spec"]["containers"]
    (key,) = (each for each in container["env"] if each["name"] == KEY)
    assert key["valueFrom"]["secretKeyRef"]["name"] == "tts-pair-engine-key"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "h100", "mps": True}, "has mps"),
        ({"gpu": "h100", "generator": {"container": "other:1"}}, "two images share a GPU"),
    ],
)
def test_what_containers_cannot_do_is_refused(rendered: Rendered, changes: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        rendered(started_deployment(**changes))
