"""The commands of a build: they fit the facts on the tools, and say what the deployment says."""

import ast
import itertools
import json
import shlex
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.standin.build_arguments import check_build_arguments
from tests.build.tensorrt_deployments import WORK, deployments, make, model

from tts.base.errors import CheckpointError, ConfigError
from tts.build.model_config import shape_of
from tts.build.spec import CritiqueSpec, Deployment, Gpu, TensorRTSpec
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import SCRIPT, BuildStep, build_values, expected_engine, steps
from tts.build.tensorrt.engine_memory import ranks_of
from tts.build.tensorrt.toolchain import docker_command, shell_text


@given(deployments(), st.sampled_from(["generator", "verifier"]))
def test_commands_of_any_deployment_fit_the_facts(deployment, role):
    made = steps(deployment, role, model(), WORK)
    compile_step = made[-1]
    assert compile_step.command[0] == "trtllm-build"
    assert check_build_arguments(compile_step.command[1:]) == []
    spec = deployment.engines()[role]
    flags = _flags(compile_step)
    tokens = min(spec.max_num_tokens, spec.max_batch_size * spec.max_seq_len)
    assert int(flags["--max_num_tokens"]) == tokens, "beyond it the builder clips"
    most = tokens if role == "verifier" else min(spec.max_batch_size, tokens)
    assert int(flags["--opt_num_tokens"]) == most
    assert int(flags["--workers"]) == spec.placement.ranks
    assert flags["--tokens_per_block"] == str(spec.kv_cache.block_size)
    assert ("--gather_generation_logits" in flags) == (role == "verifier")
    for step in made:
        assert step.network == (step.name == "quantise" and "cnn_dailymail" in step.command)
        assert len(step.devices) == spec.placement.ranks
        _mounted(step)


def _flags(step):
    """The value of each flag; empty for a switch."""
    words = [*step.command[1:], "--"]
    return {
        word: "" if after.startswith("--") else after
        for word, after in itertools.pairwise(words)
        if word.startswith("--")
    }


def _mounted(step):
    """Every path of a command lies in what the step is given, outputs in what it may write."""
    for word, before in zip(step.command[2:], step.command[1:], strict=False):
        if word.startswith("/"):
            allowed = step.writes if before.startswith("--output") else step.reads + step.writes
            assert any(Path(word).is_relative_to(path) for path in allowed), (step.name, word)


@given(deployments(), st.sampled_from(["generator", "verifier"]))
def test_the_plan_counts_the_embedding_as_the_conversion_lays_it(deployment, role):
    spec = deployment.engines()[role]
    _, conversion, _ = steps(deployment, role, model(), WORK)
    shares = spec.placement.tensor_parallel if "--split-embedding" in conversion.command else 1
    whole = 2 * model().vocab_size * model().hidden_size
    for number, rank in enumerate(ranks_of(model(), spec)):
        first = number < spec.placement.tensor_parallel
        assert rank.weights - rank.streamed == (whole // shares if first else 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("8", "'8' belongs to no flag"),
        ("--quite_new 8", "--quite_new is not a flag of trtllm-build 1.2.1"),
        ("--workers 8 --workers 9", "--workers is given twice"),
        ("--workers 8 9", "takes one value, but has 2"),
        ("--workers eight", "'eight' is not a whole number"),
        ("--paged_kv_cache enable", "is deprecated"),
        ("--gather_all_token_logits yes", "takes no value"),
        ("--workers 8", "--max_seq_len is missing"),
    ],
)
def test_the_stand_in_refuses_what_the_builder_would(arguments, problem):
    assert any(problem in found for found in check_build_arguments(arguments.split()))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"--context_fmha": "disable"}, "use_paged_context_fmha is switched off"),
        ({"--multiple_profiles": "enable"}, "excludes --opt_num_tokens"),
        ({"--opt_num_tokens": "4096"}, "larger than --max_num_tokens"),
        ({"--max_input_len": "4096"}, "larger than --max_seq_len"),
        ({"--tokens_per_block": "48"}, "not a power of two"),
        ({"--max_batch_size": "0"}, "0 is less than 1"),
        ({"--max_num_tokens": "99999999"}, "clipped to max_batch_size x max_seq_len"),
        ({"--logits_dtype": "int8"}, "'int8' is none of float16, float32"),
    ],
)
def test_combinations_that_the_builder_would_change(change, problem):
    values = dict(
        zip(*[iter(steps(make(), "generator", model(), WORK)[-1].command[1:])] * 2, strict=True)
    )
    arguments = [word for pair in (values | change).items() for word in pair]
    assert any(problem in found for found in check_build_arguments(arguments))


def test_roles_are_tuned_for_decoding_and_for_prefill():
    deployment = make()
    generator = build_values(deployment.generator, model())
    verifier = build_values(deployment.verifier, model())
    assert verifier == {
        "--max_batch_size": "64",
        "--max_input_len": "128",
        "--max_seq_len": "128",
        "--max_num_tokens": "1024",
        "--opt_num_tokens": "1024",
        "--max_beam_width": "1",
        "--kv_cache_type": "paged",
        "--tokens_per_block": "32",
        "--remove_input_padding": "enable",
        "--gpt_attention_plugin": "auto",
        "--context_fmha": "enable",
        "--use_paged_context_fmha": "enable",
        "--use_fp8_context_fmha": "disable",
        "--gemm_plugin": "auto",
        "--use_fused_mlp": "enable",
        "--multiple_profiles": "disable",
        "--logits_dtype": "float32",
        "--gather_generation_logits": "",
    }
    del verifier["--gather_generation_logits"]
    assert generator == verifier | {"--opt_num_tokens": "64"}
    fp8 = make(precision="fp8", tensorrt={"kv_precision": "fp8"}).generator
    assert build_values(fp8, model()) == generator | {
        "--use_fp8_context_fmha": "enable",
        "--gemm_plugin": "disable",
    }
    writes = {"format": "critique", "in_flight_requests": 8, "in_flight_tokens": None}
    verdict = {"after": "Verdict:", "probability": True, "labels": {"+": 1.0, "-": 0.0}}
    critic = deployment.verifier.model_copy(update=writes)
    assert build_values(critic, model()) == generator
    read = critic.model_copy(update={"critique": CritiqueSpec(verdict=verdict)})
    shared = deployment.model_dump(exclude_unset=True) | {
        "verifier": {"same_as": "generator", "in_flight_tokens": 8192}
    }
    for judges in (read, Deployment.model_validate(shared).engines()["generator"]):
        assert build_values(judges, model()) == generator | {"--gather_generation_logits": ""}
    int8 = build_values(make(precision="int8").generator, model())
    assert int8 == generator | {"--use_fused_mlp": "disable"}


@pytest.mark.parametrize(
    ("precision", "kv", "stored", "dtype", "algorithms", "fp8_attention"),
    [
        ("bf16", "auto", "float16", "bfloat16", (None, None), False),
        ("fp16", "auto", "bfloat16", "float16", (None, None), False),
        ("fp8", "fp8", "float16", "float16", ("FP8", "FP8"), True),
        ("fp8", "auto", "float32", "bfloat16", ("FP8", None), False),
        ("int8", "auto", "bfloat16", "bfloat16", ("W8A16", None), False),
        ("int4_awq", "auto", "float16", "float16", ("W4A16_AWQ", None), False),
    ],
)
def test_precisions(precision, kv, stored, dtype, algorithms, fp8_attention):
    spec = make(precision=precision, tensorrt={"kv_precision": kv}).generator
    expected = expected_engine(spec, model(dtype=stored))
    assert (expected["quant_algo"], expected["kv_cache_quant_algo"]) == algorithms
    assert expected["dtype"] == dtype
    assert expected["use_fp8_context_fmha"] is fp8_attention
    assert expected["use_paged_context_fmha"] is True
    assert expected.keys() <= contract.engine_fields().keys()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_num_tokens": 31}, r"31 tokens in a step.*block of 32"),
        ({"max_seq_len": 31, "max_batch_size": 1}, r"31 tokens in a step.*block of 32"),
        (
            {"precision": "fp8", "tensorrt": {"calibration": {"dataset": "mine/set"}}},
            "neither a set that is known by name",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(fields, reason):
    with pytest.raises(ConfigError, match=reason):
        steps(make(**fields), "generator", model(), WORK)


def test_one_block_in_a_step_is_enough():
    assert steps(make(max_num_tokens=32), "generator", model(), WORK)


def test_experts_are_split_as_asked():
    mixtral = shape_of(Path("Mixtral-8x7B-Instruct-v0.1"), "tensorrt")
    place = {"tensor_parallel": 4, "expert_parallel": 2}
    _, conversion, compilation = steps(make(tensorrt=place), "generator", mixtral, WORK)
    assert conversion.command[conversion.command.index("--expert-parallel") + 1] == "2"
    assert "--moe_plugin" in compilation.command
    expected = expected_engine(make(tensorrt=place).generator, mixtral)
    assert expected["moe_ep_size"] == 2
    with pytest.raises(ConfigError, match="does not split experts"):
        steps(make(precision="fp8", tensorrt=place), "generator", mixtral, WORK)


def test_a_checkpoint_with_code_of_its_own_is_refused(tmp_path):
    config = {"architectures": ["LlamaForCausalLM"], "auto_map": {"AutoModel": "evil.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="brings Python code of its own"):
        shape_of(tmp_path, "tensorrt")


def test_containers_and_gpus_of_the_spec_are_known():
    tags = get_args(TensorRTSpec.model_fields["container"].annotation)
    assert tuple(contract.containers()) == tags
    for gpu in get_args(Gpu):
        major, _, minor = contract.compute_capability(gpu).partition(".")
        assert (int(major), int(minor)) >= (8, 0)
    assert {c.tensorrt_llm for c in contract.containers().values()} == {contract.TENSORRT_LLM}


def test_the_script_in_the_container_stands_alone():
    imported = [n for n in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(n, ast.ImportFrom)]
    assert not any(node.level or (node.module or "").startswith("tts") for node in imported)


def test_docker_mounts_what_a_checkpoint_links_to(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snap, shot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1").touch()
    (snapshot / "model.safetensors").symlink_to("../blobs/1")
    step = BuildStep("convert", ("python3", "--a", "b c", "it's"), (1, 2), reads=(snapshot,))
    command = docker_command(step, WORK, "26.07", "name")
    assert f'--mount=type=bind,"src={snapshot}","dst={snapshot}",readonly' in command
    assert f"--mount=type=bind,src={blobs},dst={blobs},readonly" in command
    assert '--gpus="device=1,2"' in command
    assert "--network=none" in command
    pasted = shell_text(command).replace("\\\n", "")
    assert tuple(shlex.split(pasted)) == command
