"""The check of manifests on disk: each differing key by its path, and what it does."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.bundled import FOR_GPUS

from tts.build.errors import CheckpointError
from tts.build.spec import load_deployment
from tts.checks import check_manifests
from tts.checks.manifests import _differences
from tts.serving.repository.check import Finding
from tts.serving.repository.manifests import render_manifests

TWO = "llama-8b-prm-8b-2xh100-bf16"
HEADED = "llama-1b-skywork-1.5b-h100-bf16"
"""Its manifests hold the biases of its verifier's head, and so need the checkpoint."""
GPU = [name for name in FOR_GPUS if name != HEADED]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    render_manifests(load_deployment(TWO), tmp_path / "manifests")
    return tmp_path / "manifests"


def found(folder: Path) -> list[Finding]:
    return list(check_manifests(load_deployment(TWO), folder))


def edited(folder: Path, name: str, old: str, new: str) -> Finding:
    """The one finding after a replacement in one manifest."""
    file = folder / name
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    (finding,) = found(folder)
    assert finding.where.startswith(f"{file}: ")
    assert finding.fix.endswith(f"tts render {TWO} --manifests {folder}")
    return finding


def test_a_head_whose_biases_are_not_here_is_refused_by_name(tmp_path: Path):
    with pytest.raises(CheckpointError, match="biases of the verifier's head are not known"):
        render_manifests(load_deployment(HEADED), tmp_path)


@pytest.mark.parametrize("name", GPU)
def test_what_was_rendered_has_nothing_wrong(name: str, tmp_path: Path):
    deployment = load_deployment(name)
    render_manifests(deployment, tmp_path)
    assert list(check_manifests(deployment, tmp_path)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "where", "what", "why"),
    [
        (
            "compose.yaml",
            "shm_size: 2g",
            "shm_size: 64m",
            "services.triton.shm_size",
            "is '64m'; must be '2g'",
            "shared memory",
        ),
        (
            "compose.yaml",
            '"/opt/tts/probe.py", "8000"]',
            '"/opt/tts/probe.py", "8001"]',
            "services.triton.healthcheck.test",
            "lacks '8000' and has '8001'",
            "unless it is probed",
        ),
        (
            "compose.yaml",
            '      TRTLLM_ORCHESTRATOR: "1"\n',
            "",
            "services.triton.environment.TRTLLM_ORCHESTRATOR",
            "is missing; must be '1'",
            "TensorRT-LLM reads it",
        ),
        (
            "compose.yaml",
            "count: all",
            "count: 1",
            "devices.nvidia.count",
            "is 1; must be 'all'",
            "GPUs",
        ),
        (
            "kubernetes.yaml",
            "nvidia.com/gpu: 2",
            "nvidia.com/gpu: 1",
            "containers.triton.resources.limits.nvidia.com/gpu",
            "is 1; must be 2",
            "as many GPUs",
        ),
        (
            "kubernetes.yaml",
            "sizeLimit: 2Gi",
            "sizeLimit: 64Mi",
            "volumes.shared-memory.emptyDir.sizeLimit",
            "is '64Mi'; must be '2Gi'",
            "shared memory",
        ),
        (
            "autoscaler.yaml",
            "stabilizationWindowSeconds: 900",
            "stabilizationWindowSeconds: 9",
            "HorizontalPodAutoscaler.spec.behavior.scaleDown",
            "is 9; must be 900",
            "otherwise",
        ),
    ],
)
def test_a_changed_key_is_named_with_what_it_does(
    folder: Path, file: str, old: str, new: str, where: str, what: str, why: str
):
    finding = edited(folder, file, old, new)
    assert finding.severity == "error"
    assert where in finding.where
    assert what in finding.what
    assert why in finding.why


def rewritten(folder: Path, change: Any) -> list[Finding]:
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


def test_exchanged_mounts_are_named_at_both_places(folder: Path):
    def exchange(documents: dict[str, Any]) -> None:
        mounts = pod(documents)["containers"][0]["volumeMounts"]
        one, other = (mount for mount in mounts if mount["name"] == "engines")
        one["subPath"], other["subPath"] = other["subPath"], one["subPath"]

    one, other = rewritten(folder, exchange)
    assert (one.what, other.what) == (
        "is 'verifier'; must be 'generator'",
        "is 'generator'; must be 'verifier'",
    )
    assert all("at the path it has here" in finding.why for finding in (one, other))


def test_a_model_of_a_pod_is_named_with_the_line_that_differs(folder: Path):
    def change(documents: dict[str, Any]) -> None:
        data = documents["ConfigMap"]["data"]
        data["prm.config.pbtxt"] = data["prm.config.pbtxt"].replace("TYPE_FP32", "TYPE_FP16", 1)

    (finding,) = rewritten(folder, change)
    assert finding.where.endswith("ConfigMap.data.prm.config.pbtxt")
    assert finding.what.startswith("differs in line ")
    assert "TYPE_FP16" in finding.what


def test_a_service_that_is_not_headless_any_more_is_named(folder: Path):
    def change(documents: dict[str, Any]) -> None:
        del documents["Service"]["spec"]["clusterIP"]

    (finding,) = rewritten(folder, change)
    assert finding.what == "is missing; must be 'None'"
    assert "every pod by an address" in finding.why


def test_what_was_added_is_doubted_and_what_the_cluster_decides_is_left_alone(folder: Path):
    def change(documents: dict[str, Any]) -> None:
        claim = documents["PersistentVolumeClaim"]["spec"]
        claim["storageClassName"] = "fast"
        claim["resources"]["requests"]["storage"] = "2Ti"
        pod(documents)["nodeSelector"] = {"zone": "a"}

    (finding,) = rewritten(folder, change)
    assert finding.severity == "warning"
    assert finding.where.endswith("template.spec.nodeSelector")
    assert finding.what == "was not rendered"


def test_files_that_are_missing_damaged_or_no_files(folder: Path):
    (folder / "autoscaler.yaml").unlink()
    (folder / "compose.yaml").write_text("services: [")
    (folder / "prometheus-adapter.yaml").write_text("- rules")
    (folder / "kubernetes.yaml").unlink()
    (folder / "kubernetes.yaml").mkdir()
    (folder / "probe.py").write_text((folder / "probe.py").read_text().replace("20", "2", 1))
    told = {Path(f.where).name: (f.severity, f.what) for f in found(folder)}
    assert told.pop("autoscaler.yaml") == ("warning", "is missing")
    assert told.pop("probe.py")[1].startswith("differs in line 12: is 'TIMEOUT_S = 2'")
    assert {name: severity for name, (severity, _) in told.items()} == dict.fromkeys(
        ("compose.yaml", "prometheus-adapter.yaml", "kubernetes.yaml"), "error"
    )
    assert all(what.startswith("cannot be read: ") for _, what in told.values())


VALUES = st.recursive(
    st.integers() | st.text(max_size=5) | st.booleans(),
    lambda below: (
        st.dictionaries(st.text(max_size=5), below, min_size=1, max_size=3)
        | st.lists(below, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, (dict, list)):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for key, item in items for leaf in leaves(item, (*path, key))]


@given(value=VALUES.filter(lambda value: isinstance(value, dict)), data=st.data())
def test_one_changed_value_is_one_difference_on_its_way(value: dict[str, Any], data: st.DataObject):
    other = copy.deepcopy(value)
    assert list(_differences(value, other, ())) == []
    *parents, last = data.draw(st.sampled_from(leaves(value)))
    place: Any = other
    for key in parents:
        place = place[key]
    place[last] = 1.5
    ((path, what, severe),) = _differences(value, other, ())
    assert severe
    assert path == tuple(map(str, (*parents, last)))[: len(path)]
    assert what
