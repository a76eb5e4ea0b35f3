"""The repository of target tensorrt: what the contract demands, and every corruption is noticed."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.bundled import TENSORRT
from tests.conftest import write_tokenizer
from tests.serving.corruptions import CORRUPTIONS, corrupted
from tests.serving.facts import unexpected
from tritonclient.grpc import model_config_pb2 as triton

from tts.base import paths
from tts.base.errors import BuildError, CheckpointError
from tts.build.spec import Deployment, load_deployment
from tts.build.tensorrt.memory_plan import KV_FRACTION
from tts.serving.contract import contract
from tts.serving.repository import render as repository
from tts.serving.repository.check import check_repository
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.model_configs import model_configs
from tts.serving.repository.render import parse_config, render_repository

Make = Callable[..., Deployment]
FILES = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


def parameters(config: Any) -> dict[str, str]:
    return {key: value.string_value for key, value in config.parameters.items()}


def test_a_pair_on_one_gpu(tensorrt: Make):
    deployment = tensorrt()
    folder = render_repository(deployment)
    assert check_repository(folder, deployment) == []
    assert unexpected(folder) == []
    configs = {path.name: parse_config(path / "config.pbtxt") for path in folder.iterdir()}
    assert set(configs) == {"generator", "prm_engine", "prm_score", "prm"}
    generator, engine = configs["generator"], configs["prm_engine"]
    assert generator.backend == engine.backend == "tensorrtllm"
    assert generator.model_transaction_policy.decoupled
    assert not engine.model_transaction_policy.decoupled
    assert {t.name: triton.DataType.Name(t.data_type) for t in engine.output}[
        "generation_logits"
    ] == "TYPE_FP32"
    values = parameters(engine)
    assert values == {
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "cancellation_check_period_ms": "5",
        "decoding_mode": "top_k_top_p",
        "deployment_digest": deployment_digest(deployment),
        "enable_chunked_context": "true",
        "enable_kv_cache_reuse": "true",
        "exclude_input_in_output": "true",
        "gpt_model_path": str(paths.engine_dir("pair", "verifier")),
        "gpt_model_type": "inflight_fused_batching",
        "gpu_device_ids": "0",
        "guided_decoding_backend": "",
        "kv_cache_free_gpu_mem_fraction": str(KV_FRACTION),  # as the plan has it
        "kv_cache_host_memory_bytes": "0",
        "kv_cache_onboard_blocks": "true",
        "max_beam_width": "1",
        "max_tokens_in_paged_kv_cache": "65536",
        "normalize_log_probs": "true",
        "recv_poll_period_ms": "1",
        "stats_check_period_ms": "100",
        "tokenizer_dir": "",
        "xgrammar_tokenizer_info_path": "",
    }
    inputs = {tensor.name: tensor for tensor in engine.input}
    assert inputs.keys() == {tensor.name for tensor in contract().inputs}
    assert inputs["temperature"].optional
    assert inputs["temperature"].HasField("reshape")
    assert inputs["input_ids"].allow_ragged_batch
    assert not inputs["request_output_len"].optional
    first, second = configs["prm"].ensemble_scheduling.step
    assert (first.model_name, second.model_name) == ("prm_engine", "prm_score")
    assert first.model_version == second.model_version == -1  # the latest
    assert set(first.input_map) == {tensor.name for tensor in configs["prm"].input}
    assert set(first.output_map) == set(second.input_map)
    assert set(second.output_map) == {"score", "label_logits"}
    # nothing but the token ids of the published verifier: its checkpoint is not here
    assert configs["prm_score"].parameters["label_ids"].string_value == "10,12"
    assert configs["prm_score"].parameters["label_weights"].string_value == "1.0,0.0"
    assert list((folder / "generator" / "1").iterdir()) == []


def test_replicas_policies_and_host_memory_come_from_the_deployment(tensorrt: Make):
    deployment = tensorrt(
        generator={
            "scheduling_policy": "max_utilization",
            "kv_cache": {"tokens": 4096, "reuse": False},
            "tensorrt": {"tensor_parallel": 2, "gpus": [[0, 1], [2, 3]], "kv_host_gib": 1.5},
        }
    )
    config = parse_config(render_repository(deployment) / "generator" / "config.pbtxt")
    assert config.instance_group[0].count == 2
    assert config.instance_group[0].kind == triton.ModelInstanceGroup.KIND_CPU
    values = parameters(config)
    assert values["gpu_device_ids"] == "0,1;2,3"
    assert values["batch_scheduler_policy"] == "max_utilization"
    assert values["kv_cache_host_memory_bytes"] == str(3 * 2**29)
    assert values["max_tokens_in_paged_kv_cache"] == "4096"
    assert values["enable_kv_cache_reuse"] == "false"


WRITES = {"format": "critique", "in_flight_tokens": None, "in_flight_requests": 8}
VERDICT = {"after": "Verdict:", "probability": True, "labels": {"+": 1.0, "-": 0.0}}


@pytest.mark.parametrize(
    ("verifier", "engines", "decoupled", "scored"),
    [
        ({}, {"generator", "prm_engine"}, {"generator"}, "prm_engine"),
        (WRITES, {"generator", "prm"}, {"generator", "prm"}, None),
        (
            WRITES | {"critique": {"verdict": VERDICT}},
            {"generator", "prm_engine"},
            {"generator", "prm_engine", "prm"},
            "prm_engine",
        ),
        ({"same_as": "generator"}, {"generator"}, {"generator", "prm"}, "generator"),
        (WRITES | {"same_as": "generator"}, {"generator"}, {"generator"}, None),
    ],
)
def test_engines_that_write_are_decoupled_and_so_is_an_ensemble_over_one(
    tensorrt: Make,
    tmp_path: Path,
    verifier: dict[str, Any],
    engines: set[str],
    decoupled: set[str],
    scored: str | None,
):
    write_tokenizer(tmp_path)
    given = tensorrt(checkpoint=tmp_path).model_dump(exclude_unset=True)
    own = {"in_flight_tokens": 8192}
    if "same_as" not in verifier:
        own = {name: each for name, each in given["verifier"].items() if name != "labels"}
    deployment = Deployment.model_validate(given | {"verifier": own | verifier})
    folder = render_repository(deployment)
    assert check_repository(folder, deployment) == []
    assert unexpected(folder) == []
    configs = {path.name: parse_config(path / "config.pbtxt") for path in folder.iterdir()}
    assert {n for n, c in configs.items() if c.backend == "tensorrtllm"} == engines
    assert {n for n, c in configs.items() if c.model_transaction_policy.decoupled} == decoupled
    if scored:
        first, _ = configs["prm"].ensemble_scheduling.step
        assert first.model_name == scored
    else:
        assert configs.keys() == engines


def test_label_ids_are_those_of_the_tokenizer_if_there_is_one(tensorrt: Make, tmp_path: Path):
    checkpoint = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    write_tokenizer(checkpoint)
    deployment = tensorrt(checkpoint=checkpoint)
    folder = render_repository(deployment)
    given_ids = parameters(parse_config(folder / "prm_score" / "config.pbtxt"))["label_ids"]
    assert given_ids != "10,12"
    assert check_repository(folder, deployment) == []


def test_unknown_labels_are_an_error(tensorrt: Make):
    with pytest.raises(CheckpointError, match=r"'\+' and '-' are not known: /models/mine has no"):
        render_repository(tensorrt(checkpoint=Path("/models/mine")))
    labels = {"labels": ["yes", "-"]}
    with pytest.raises(CheckpointError, match=r"'yes' are not known.*published ones differ"):
        render_repository(tensorrt(verifier=labels))


def test_built_engines_must_be_current(tensorrt: Make, monkeypatch: pytest.MonkeyPatch):
    def stale(deployment: Deployment) -> None:
        raise BuildError("stale")

    monkeypatch.setattr(repository, "require_current", stale)
    deployment = tensorrt()
    render_repository(deployment)
    for role in deployment.engines():
        folder = paths.engine_dir(deployment.name, role)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    with pytest.raises(BuildError, match="stale"):
        render_repository(deployment)


def test_prm_score_needs_nothing_that_the_container_lacks():
    source = (paths.templates_dir() / "common" / "prm_score" / "1" / "model.py").read_text()
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported == {"json", "numpy", "triton_python_backend_utils"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(ast.parse(source)))


def test_the_contract_names_no_key_twice():
    keys = [item.key for item in contract().parameters] + contract().other_parameters
    assert len(set(keys)) == len(keys)


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    def engine() -> dict[str, object]:
        ranks = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (4, 1), (2, 2)]))
        number = draw(st.integers(0, 3))
        wide = ranks[0] * ranks[1]
        gpus = [draw(st.permutations(range(8)))[:wide] for _ in range(number)]
        chunked = draw(st.booleans())
        max_seq_len = draw(st.integers(64, 8192))
        fewest = 1 if chunked else max_seq_len
        block = 2 ** draw(st.integers(3, 7))
        return {
            "precision": draw(st.sampled_from(["bf16", "fp16", "fp8", "int8", "int4_awq"])),
            "max_batch_size": draw(st.integers(1, 512)),
            "max_num_tokens": draw(st.integers(fewest, 3 * 8192)),
            "max_seq_len": max_seq_len,
            "chunked_context": chunked,
            "scheduling_policy": draw(st.sampled_from(["guaranteed_no_evict", "max_utilization"])),
            "kv_cache": {
                "block_size": block,
                "tokens": draw(st.integers(max_seq_len + block, 2_000_000)),
                "reuse": draw(st.booleans()),
            },
            "tensorrt": {
                "tensor_parallel": ranks[0],
                "pipeline_parallel": ranks[1],
                "gpus": gpus,
                "kv_host_gib": draw(st.sampled_from([0, 0.5, 16, 1.1])),
            },
        }

    from tests.serving.conftest import make_tensorrt

    verifier = {**engine(), "in_flight_tokens": 8192}
    return make_tensorrt(generator=engine(), verifier=verifier)


@settings(max_examples=amount(10, 40), deadline=None, suppress_health_check=FILES)
@given(deployment=deployments())
def test_every_valid_deployment_renders_and_checks_clean(tensorrt: Make, deployment: Deployment):
    folder = render_repository(deployment)
    assert check_repository(folder, deployment) == []
    assert unexpected(folder) == []


def test_every_single_corruption_is_found(
    tensorrt: Make, tmp_path: Path, record_property: Callable[[str, object], None]
):
    deployment = tensorrt(
        generator={"tensorrt": {"tensor_parallel": 2, "gpus": [[0, 1], [2, 3]]}},
        verifier={"tensorrt": {"gpus": [[4]]}},
    )
    folder = render_repository(deployment)
    missed = [
        what for what, copy in corrupted(folder, tmp_path) if not check_repository(copy, deployment)
    ]
    score = f"{CORRUPTIONS - len(missed)} of {CORRUPTIONS} corruptions found"
    record_property("mutation score", score)
    print(score)
    assert missed == []


def test_a_finding_says_where_and_how_to_mend_it(tensorrt: Make):
    deployment = tensorrt()
    folder = render_repository(deployment)
    file = folder / "prm_engine" / "config.pbtxt"
    file.write_text(file.read_text().replace('"guaranteed_no_evict"', '"static_batch"'))
    (finding,) = check_repository(folder, deployment)
    assert finding.where == "prm_engine/config.pbtxt: parameters.batch_scheduler_policy"
    assert "'static_batch'" in finding.what
    assert finding.fix.endswith("tts render pair")


def test_an_absent_repository_is_findings_not_a_crash(tensorrt: Make, tmp_path: Path):
    findings = check_repository(tmp_path / "nothing", tensorrt())
    assert {finding.what for finding in findings} == {"is missing"}


@pytest.mark.parametrize("name", [name for name in TENSORRT if "skywork" not in name])
def test_bundled_deployments_render_as_the_contract_has_them(name: str, tmp_path: Path):
    """But for that whose biases are in its checkpoint."""
    deployment = load_deployment(name)
    repository.render_models(deployment, model_configs(deployment), tmp_path / "models")
    assert unexpected(tmp_path / "models") == []
