"""The commands of a build: they fit the contract, and say what the deployment says."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.standin.build_arguments import check_build_arguments
from tests.build.tensorrt_deployments import WORK, deployments, make, model

from tts.build.errors import ConfigError
from tts.build.spec import Deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import (
    SCRIPT,
    BuildStep,
    build_values,
    calls,
    expected_engine,
    steps,
)
from tts.build.tensorrt.engine_memory import ranks_of
from tts.build.tensorrt.model_shape import shape_of


@given(deployments(), st.sampled_from(["generator", "verifier"]))
def test_commands_of_any_deployment_fit_the_contract(deployment: Deployment, role: Any) -> None:
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
        assert len(step.devices) == deployment.engines()[role].placement.ranks
        _mounted(step)


def _flags(step: BuildStep) -> dict[str, str]:
    """The value of each flag; empty for a switch."""
    words = [*step.command[1:], "--"]
    return {
        word: "" if after.startswith("--") else after
        for word, after in itertools.pairwise(words)
        if word.startswith("--")
    }


def _mounted(step: BuildStep) -> None:
    """Every path of a command lies in what the step is given, outputs in what it may write."""
    for word, before in zip(step.command[2:], step.command[1:], strict=False):
        if word.startswith("/"):
            allowed = step.writes if before.startswith("--output") else step.reads + step.writes
            assert any(Path(word).is_relative_to(path) for path in allowed), (step.name, word)


@given(deployments(), st.sampled_from(["generator", "verifier"]))
def test_the_plan_counts_the_embedding_as_the_conversion_lays_it(
    deployment: Deployment, role: Any
) -> None:
    spec = deployment.engines()[role]
    _, conversion, _ = steps(deployment, role, model(), WORK)
    shares = spec.placement.tensor_parallel if "--split-embedding" in conversion.command else 1
    whole = 2 * model().vocab_size * model().hidden_size
    for number, rank in enumerate(ranks_of(model(), spec)):
        first = number < spec.placement.tensor_parallel
        assert rank.weights - rank.streamed == (whole // shares if first else 0)


def test_experts_divided_over_ranks_are_part_of_what_is_called() -> None:
    def mapping(**placement: int) -> tuple[str, ...]:
        spec = make(tensorrt={"tensor_parallel": 2, **placement}).generator
        return calls(spec, model())["tensorrt_llm.Mapping"].keywords

    more = set(mapping(expert_parallel=2)) - set(mapping())
    assert more == {"moe_ep_size", "moe_tp_size"}
    assert all(f'"{name}"' in SCRIPT.read_text() for name in more)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"--context_fmha": "disable"}, "use_paged_context_fmha is switched off"),
        ({"--multiple_profiles": "enable"}, "excludes --opt_num_tokens"),
        ({"--opt_num_tokens": "4096"}, "larger than --max_num_tokens"),
        ({"--max_input_len": "4096"}, "larger than --max_seq_len"),
        ({"--tokens_per_block": "48"}, "not a power of two"),
        ({"--max_num_tokens": "99999999"}, "clipped to max_batch_size x max_seq_len"),
        ({"--paged_kv_cache": "enable"}, "deprecated"),
        ({"--gather_all_token_logits": "yes"}, "takes no value"),
    ],
)
def test_combinations_that_the_builder_would_change(change: dict[str, str], problem: str) -> None:
    values = dict(
        zip(*[iter(steps(make(), "generator", model(), WORK)[-1].command[1:])] * 2, strict=True)
    )
    arguments = [word for pair in (values | change).items() for word in pair]
    assert any(problem in found for found in check_build_arguments(arguments))


def test_roles_are_tuned_for_decoding_and_for_prefill() -> None:
    deployment = make()
    generator = build_values("generator", deployment.generator, model())
    verifier = build_values("verifier", deployment.verifier, model())
    assert verifier == {
        "--max_batch_size": "64",
        "--max_input_len": "512",
        "--max_seq_len": "512",
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
    assert build_values("generator", fp8, model()) == generator | {
        "--use_fp8_context_fmha": "enable",
        "--gemm_plugin": "disable",
    }
    int8 = build_values("generator", make(precision="int8").generator, model())
    assert int8 == generator | {"--use_fused_mlp": "disable"}


@pytest.mark.parametrize(
    ("precision", "kv", "algorithms", "fp8_attention"),
    [
        ("bf16", "auto", (None, None), False),
        ("fp8", "fp8", ("FP8", "FP8"), True),
        ("fp8", "auto", ("FP8", None), False),
        ("int8", "auto", ("W8A16", None), False),
        ("int4_awq", "auto", ("W4A16_AWQ", None), False),
    ],
)
def test_precisions(precision: str, kv: str, algorithms: Any, fp8_attention: bool) -> None:
    deployment = make(precision=precision, tensorrt={"kv_precision": kv})
    expected = expected_engine("generator", deployment.generator, model())
    assert (expected["quant_algo"], expected["kv_cache_quant_algo"]) == algorithms
    assert expected["use_fp8_context_fmha"] is fp8_attention
    assert expected["use_paged_context_fmha"] is True
    for name in expected:
        assert name in contract.engine_fields()


@pytest.mark.parametrize(
    ("deployment", "reason"),
    [
        (make("a100-80g", precision="fp8"), "fp8 needs compute capability 8.9"),
        (make("b200", precision="int4_awq"), "refuses weight-only int8 and int4"),
        (make(tensorrt={"tensor_parallel": 3}), "must divide the model's 32 attention heads"),
        (make(tensorrt={"pipeline_parallel": 64}), "the model has 32 layers"),
        (make(max_num_tokens=16), r"16 tokens in a step.*block of 32"),
        (make(max_seq_len=16, max_batch_size=1), r"16 tokens in a step.*block of 32"),
        (make(tensorrt={"tensor_parallel": 2, "expert_parallel": 2}), "has no experts"),
        (
            make(precision="fp8", tensorrt={"calibration": {"dataset": "mine/set"}}),
            "neither a set that is known by name",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(deployment: Deployment, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        steps(deployment, "generator", model(), WORK)


def test_experts_are_split_as_asked(tmp_path: Path) -> None:
    config = {
        "architectures": ["MixtralForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 128,
        "max_position_embeddings": 1024,
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    mixtral = shape_of(tmp_path, "tensorrt")
    assert mixtral.experts is not None
    assert (mixtral.architecture, mixtral.experts.count) == ("MixtralForCausalLM", 8)
    place = {"tensor_parallel": 4, "expert_parallel": 2}
    _, conversion, compilation = steps(make(tensorrt=place), "generator", mixtral, WORK)
    assert conversion.command[conversion.command.index("--expert-parallel") + 1] == "2"
    assert "--moe_plugin" in compilation.command
    expected = expected_engine("generator", make(tensorrt=place).generator, mixtral)
    assert expected["moe_ep_size"] == 2
    with pytest.raises(ConfigError, match="does not split experts"):
        steps(make(precision="fp8", tensorrt=place), "generator", mixtral, WORK)
