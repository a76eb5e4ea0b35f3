"""The gateway in the manifests finds its server, is let in by it, and knows it by its digest."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tts.base import paths
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.serving.repository import gateway
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.manifests import render_manifests

Make = Callable[..., Deployment]


def documents(folder: Path, name: str) -> dict[str, Any]:
    """By kind; the server's network policy under its own, the gateway's under another."""
    found = list(yaml.safe_load_all((folder / name).read_text()))
    return {f"{d['kind']} {d['metadata']['name']}": d for d in found}


@pytest.fixture
def folder(tensorrt: Make, tmp_path: Path) -> Path:
    render_manifests(tensorrt("pair", grpc_port=9001), tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def pod(folder: Path) -> dict[str, Any]:
    """The gateway's pods in Kubernetes, as their template has them."""
    found = documents(folder, "gateway.yaml")["Deployment tts-pair-gateway"]
    return found["spec"]["template"]


@pytest.fixture
def services(folder: Path) -> dict[str, Any]:
    """The services of docker compose."""
    return yaml.safe_load((folder / "compose.yaml").read_text())["services"]


def test_the_gateway_knows_the_server_by_its_digest(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With nothing of the engines but their manifests, at another address."""
    demo = load_deployment("demo")
    text = gateway.deployment_text(demo, "tts-demo", 8001)
    expected = deployment_digest(demo)
    manifests = gateway.engine_manifests(demo)
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    for role, file in manifests.items():
        place = paths.engine_dir("demo", role) / file.name
        place.parent.mkdir(parents=True)
        shutil.copyfile(file, place)
    (tmp_path / "deployment.yaml").write_text(text)
    loaded = load_deployment(tmp_path / "deployment.yaml")
    assert (loaded.server.host, loaded.server.grpc_port) == ("tts-demo", 8001)
    assert deployment_digest(loaded) == expected


def test_what_scrapes_reads_the_gateways_metrics_without_a_key(
    pod: dict[str, Any], services: dict[str, Any]
):
    (container,) = pod["spec"]["containers"]
    asked = pod["metadata"]["annotations"]["prometheus.io/port"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["metrics"] == int(asked)
    for words in (container["args"], services["gateway"]["command"]):
        assert words[words.index("--metrics") + 1] == f"0.0.0.0:{asked}"
    assert f"127.0.0.1:{asked}:{asked}" in services["gateway"]["ports"]


def test_one_engine_in_both_roles_has_one_checkpoint_in_the_cluster(tensorrt: Make):
    data = tensorrt().model_dump(mode="json", exclude={"verifier"}, exclude_none=True)
    data["verifier"] = {"same_as": "generator", "format": "prompted", "in_flight_tokens": 8192}
    data["verifier"]["prompt"] = "{question} {steps} {step}"
    moved = gateway.in_pod(Deployment.model_validate(data))
    assert {spec.checkpoint for spec in moved.roles().values()} == {
        gateway.CHECKPOINTS / "generator"
    }


def test_a_pod_finds_tokenizers_in_the_cluster(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt()
    render_manifests(deployment, tmp_path)
    manifests = documents(tmp_path, "gateway.yaml")
    text = manifests["ConfigMap tts-pair-gateway"]["data"]["deployment.yaml"]
    found = {role: yaml.safe_load(text)[role]["checkpoint"] for role in ("generator", "verifier")}
    assert found == {role: f"{gateway.CHECKPOINTS}/{role}" for role in found}
    (container,) = manifests["Deployment tts-pair-gateway"]["spec"]["template"]["spec"][
        "containers"
    ]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["checkpoints"] == str(gateway.CHECKPOINTS)


@pytest.mark.parametrize("name", bundled_deployments())
def test_a_deployment_comes_back_as_it_was_but_for_the_server(name: str, tmp_path: Path):
    deployment = load_deployment(name)
    file = tmp_path / "deployment.yaml"
    file.write_text(gateway.deployment_text(deployment, "elsewhere", 8001))
    loaded, given = (spec.model_dump() for spec in (load_deployment(file), deployment))
    assert loaded | {"server": None} == given | {"server": None}


def test_every_manifest_calls_the_server_what_the_gateway_calls_it(
    folder: Path, services: dict[str, Any]
):
    server = yaml.safe_load((folder / "deployment.yaml").read_text())["server"]
    assert (server["host"], server["grpc_port"]) == ("tts-pair", 9001)
    assert server["host"] in services["triton"]["networks"]["default"]["aliases"]
    service = documents(folder, "kubernetes.yaml")["Service tts-pair"]
    assert {"name": "grpc", "port": 9001} in [
        {key: port[key] for key in ("name", "port")} for port in service["spec"]["ports"]
    ]
    manifests = documents(folder, "gateway.yaml")
    words = services["gateway"]["command"]
    assert words[words.index("--endpoint") + 1] == "tts-pair:9001"
    config = manifests["ConfigMap tts-pair-gateway"]
    assert yaml.safe_load(config["data"]["deployment.yaml"])["server"] == server


def test_the_gateway_finds_every_pod_of_the_server(folder: Path, pod: dict[str, Any]):
    """By a headless service: its name resolves to the address of each pod that is ready."""
    server = documents(folder, "kubernetes.yaml")
    service, pods = server["Service tts-pair-servers"]["spec"], server["Deployment tts-pair"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == pods["spec"]["template"]["metadata"]["labels"]
    (port,) = service["ports"]
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    open_ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    # a name that is resolved says nothing of ports: the service's must be the pods' own
    assert port["port"] == open_ports[port["targetPort"]] == 9001
    words = pod["spec"]["containers"][0]["args"]
    assert words[words.index("--endpoint") + 1] == "dns:tts-pair-servers:9001"


def test_requests_under_way_have_the_time_that_the_gateway_gives_them(
    pod: dict[str, Any], services: dict[str, Any]
):
    (container,) = pod["spec"]["containers"]
    service = services["gateway"]
    (_, before) = container["lifecycle"]["preStop"]["exec"]["command"]
    for words, given in (
        (container["args"], pod["spec"]["terminationGracePeriodSeconds"] - int(before)),
        (service["command"], int(service["stop_grace_period"].removesuffix("s"))),
    ):
        assert int(words[words.index("--grace") + 1]) < given


def test_only_the_gateway_reaches_the_servers_grpc(folder: Path, pod: dict[str, Any]):
    found, labels = documents(folder, "gateway.yaml"), pod["metadata"]["labels"]
    servers = documents(folder, "kubernetes.yaml")["Deployment tts-pair"]["spec"]["template"]
    policy = found["NetworkPolicy tts-pair"]["spec"]
    assert policy["podSelector"]["matchLabels"] == servers["metadata"]["labels"]
    let_in = {
        port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]
    }
    assert let_in == {
        "grpc": [{"podSelector": {"matchLabels": labels}}],
        "metrics": None,
    }
    policy = found["NetworkPolicy tts-pair-gateway"]["spec"]
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["http", "metrics"]
    assert labels != servers["metadata"]["labels"]
    assert found["Service tts-pair-gateway"]["spec"]["selector"] == labels


def test_the_gateway_has_no_rights_and_no_secret_in_its_manifest(
    folder: Path, pod: dict[str, Any], services: dict[str, Any]
):
    assert not any(name.startswith("Secret") for name in documents(folder, "gateway.yaml"))
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    (secret,) = (v["secret"] for v in spec["volumes"] if "secret" in v)
    assert secret["secretName"] == "tts-pair-keys"
    assert services["gateway"]["cap_drop"] == ["ALL"]
    assert services["gateway"]["read_only"]


def test_probes_ask_the_gateways_own_endpoints(pod: dict[str, Any], services: dict[str, Any]):
    (container,) = pod["spec"]["containers"]
    asked = {
        name: container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "readiness", "liveness")
    }
    assert asked == {
        "startup": gateway.LIVE,
        "readiness": gateway.READY,
        "liveness": gateway.LIVE,
    }
    assert services["gateway"]["healthcheck"]["test"][-1].endswith(gateway.READY)


def test_every_mount_has_its_volume(pod: dict[str, Any]):
    spec = pod["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    mounted = {
        mount["name"]
        for container in (*spec["initContainers"], *spec["containers"])
        for mount in container["volumeMounts"]
    }
    assert mounted == volumes


def test_the_gateway_takes_a_port_that_the_server_has_not(tensorrt: Make, tmp_path: Path):
    render_manifests(tensorrt("pair", grpc_port=8080, http_port=8081), tmp_path)
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert services["gateway"]["ports"] == ["127.0.0.1:8082:8082", "127.0.0.1:9090:9090"]
    command = services["gateway"]["command"]
    assert command[command.index("--port") + 1] == "8082"
