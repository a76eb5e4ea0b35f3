"""The check of manifests on disk: each differing value by the keys that lead to it."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.amounts import amount
from tests.bundled import TENSORRT
from tests.serving.corruptions import altered

from tts.base.errors import CheckpointError
from tts.base.findings import Finding
from tts.build.spec import load_deployment
from tts.checks import after_build
from tts.checks.after_build import check_manifests
from tts.serving.repository.manifests import render_manifests

TWO = "llama-8b-prm-8b-2xh100-bf16"
HEADED = "llama-1b-skywork-1.5b-h100-bf16"
"""Its manifests hold the biases of its verifier's head, and so need the checkpoint."""
GPU = [name for name in TENSORRT if name != HEADED]


@pytest.fixture(autouse=True, scope="module")
def _parsed_once():
    """Most manifests are the same in each test, and take longer to parse than to write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(after_build, "parse_yaml", cache(after_build.parse_yaml))
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    render_manifests(load_deployment(TWO), tmp_path / "manifests")
    return tmp_path / "manifests"


def found(folder: Path) -> list[Finding]:
    return list(check_manifests(load_deployment(TWO), folder))


def test_a_head_whose_biases_are_not_here_is_refused_by_name(tmp_path: Path):
    with pytest.raises(CheckpointError, match="biases of the verifier's head are not known"):
        render_manifests(load_deployment(HEADED), tmp_path)


@pytest.mark.parametrize("name", GPU)
def test_what_was_rendered_has_nothing_wrong(name: str, tmp_path: Path):
    deployment = load_deployment(name)
    render_manifests(deployment, tmp_path)
    assert list(check_manifests(deployment, tmp_path)) == []


SCALING = "stabilizationWindowSeconds: 900"


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        ("compose", "shm_size: 2g", "shm_size: 64m", "+ services.triton.shm_size: '64m'"),
        ("compose", '"8000", ', '"8001", ', "+ services.triton.healthcheck.test: '8001'"),
        (
            "compose",
            '      TRTLLM_ORCHESTRATOR: "1"\n',
            "",
            "- services.triton.environment.TRTLLM_ORCHESTRATOR: '1'",
        ),
        ("compose", "count: all", "count: 1", "devices.count: 1"),
        ("kubernetes", "com/gpu: 2", "com/gpu: 1", "triton.resources.limits.nvidia.com/gpu: 1"),
        ("kubernetes", "sizeLimit: 2Gi", "sizeLimit: 64Mi", "shared-memory.emptyDir.sizeLimit: '6"),
        ("autoscaler", SCALING, SCALING[:-2], "HorizontalPodAutoscaler.spec.behavior.scaleDown"),
    ],
)
def test_a_changed_key_is_shown(folder, file, old, new, line):
    changed = folder / f"{file}.yaml"
    text = changed.read_text()
    assert text.count(old) == 1
    changed.write_text(text.replace(old, new))
    (finding,) = found(folder)
    assert (finding.severity, finding.where) == ("error", str(changed))
    assert line in finding.what
    assert finding.fix.endswith(f"tts render {TWO} --manifests {folder}")


@pytest.mark.parametrize("seed", range(amount(10, 60)))
def test_any_value_that_is_another_or_none_is_found(folder, seed):
    rng = random.Random(seed)
    file = folder / rng.choice(["compose.yaml", "kubernetes.yaml", "autoscaler.yaml"])
    documents = list(yaml.safe_load_all(file.read_text()))
    what = altered(documents, rng, kept=("storage", "maxReplicas", "image", "resources"))
    file.write_text(yaml.safe_dump_all(documents))
    assert found(folder), what


def rewritten(folder, change):
    """The findings after a change to the parsed kubernetes.yaml."""
    file = folder / "kubernetes.yaml"
    documents = list(yaml.safe_load_all(file.read_text()))
    change({document["kind"]: document for document in documents})
    file.write_text(yaml.safe_dump_all(documents))
    return found(folder)


def pod(documents: dict[str, Any]) -> Any:
    return documents["Deployment"]["spec"]["template"]["spec"]


def test_manifests_that_were_only_written_anew_are_the_same(folder: Path):
    assert rewritten(folder, lambda documents: None) == []


def test_exchanged_mounts_are_shown_at_both_places(folder: Path):
    def exchange(documents: dict[str, Any]) -> None:
        mounts = pod(documents)["containers"][0]["volumeMounts"]
        one, other = (mount for mount in mounts if mount["name"] == "repository")
        one["subPath"], other["subPath"] = other["subPath"], one["subPath"]

    (finding,) = rewritten(folder, exchange)
    for path in ("models", "probe.py"):
        assert f"volumeMounts.repository.subPath: '{path}'" in finding.what


def test_a_model_of_a_pod_is_shown_by_the_line_that_differs(folder: Path):
    def change(documents: dict[str, Any]) -> None:
        data = documents["ConfigMap"]["data"]
        data["prm.config.pbtxt"] = data["prm.config.pbtxt"].replace("TYPE_FP32", "TYPE_FP16", 1)

    (finding,) = rewritten(folder, change)
    removed, added = finding.what.splitlines()[1:]
    assert "- ConfigMap.data.prm.config.pbtxt: " in removed
    assert "TYPE_FP16" in added


def test_what_was_added_is_doubted_and_what_the_cluster_decides_is_left_alone(folder: Path):
    def change(documents: dict[str, Any]) -> None:
        claim = documents["PersistentVolumeClaim"]["spec"]
        claim["storageClassName"] = "fast"
        claim["resources"]["requests"]["storage"] = "2Ti"
        pod(documents)["nodeSelector"] = {"zone": "a"}

    (finding,) = rewritten(folder, change)
    assert finding.severity == "warning"
    assert finding.what.endswith("+ Deployment.spec.template.spec.nodeSelector.zone: 'a'")


def test_files_that_are_missing_damaged_or_no_files(folder: Path):
    (folder / "autoscaler.yaml").unlink()
    (folder / "compose.yaml").write_text("services: [")
    (folder / "prometheus-adapter.yaml").write_text("- rules")
    (folder / "kubernetes.yaml").unlink()
    (folder / "kubernetes.yaml").mkdir()
    (folder / "probe.py").write_text((folder / "probe.py").read_text().replace("20", "2", 1))
    told = {Path(f.where).name: (f.severity, f.what) for f in found(folder)}
    assert told.pop("autoscaler.yaml") == ("warning", "is missing")
    assert "+ TIMEOUT_S = 2\n" in told.pop("probe.py")[1] + "\n"
    assert {name: severity for name, (severity, _) in told.items()} == dict.fromkeys(
        ("compose.yaml", "prometheus-adapter.yaml", "kubernetes.yaml"), "error"
    )
    assert all(what.startswith("cannot be read: ") for _, what in told.values())
