"""The graph of a likelihood verifier against transformers, for every architecture and precision."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tts.build.builder import build_engines
from tts.build.manifest import read_engine_config
from tts.build.openvino.memory import plan_host_memory
from tts.build.spec import Deployment
from tts.build.verifiers.likelihood import CODES

Deploy = Callable[..., Deployment]


def as_likelihood(deployment: Deployment) -> Deployment:
    verifier = deployment.verifier.model_copy(update={"format": "likelihood"})
    return deployment.model_copy(update={"verifier": verifier})


@pytest.mark.parametrize(
    ("architecture", "options", "precision"),
    [
        ("LlamaForCausalLM", {}, "fp32"),
        ("LlamaForCausalLM", {}, "int8"),
        ("Qwen2ForCausalLM", {"tie_word_embeddings": True, "hidden_size": 72}, "fp32"),
        ("Qwen3ForCausalLM", {"head_dim": 32}, "fp32"),
    ],
)
def test_likelihoods_are_those_of_transformers(
    deployment: Deploy, make_checkpoint: Any, architecture: str, options: Any, precision: str
) -> None:
    checkpoint = make_checkpoint(architecture, **options)
    wanted = as_likelihood(deployment(checkpoint=checkpoint, precision=precision))
    said: list[str] = []
    (report,) = build_engines(wanted, roles=["verifier"], verify=True, say=said.append)
    assert "verifier: judges with the likelihood that a language head gives to each step" in said
    assert report.verification is not None
    assert report.verification.export_error < 1e-4
    config = read_engine_config(report.folder)
    assert config.label_token_ids == (0, 1)
    assert config.output_vocab_size == 2
    assert config.vocab_size == CODES * 128


def test_a_verifier_that_becomes_a_likelihood_verifier_is_built_again(deployment: Deploy) -> None:
    labels = deployment()
    build_engines(labels, roles=["verifier"], verify=False, say=lambda line: None)
    said: list[str] = []
    build_engines(as_likelihood(labels), roles=["verifier"], verify=False, say=said.append)
    assert any("building (" in line and "output" in line for line in said), said


def test_the_memory_plan_counts_the_whole_language_head_and_what_the_cache_keeps_more(
    deployment: Deploy, llama: Path
) -> None:
    labels = deployment()
    few, many = (plan_host_memory(d).engines["verifier"] for d in (labels, as_likelihood(labels)))
    rows, hidden = 128, 64
    assert many.copies - few.copies == (rows - 2) * hidden * 4
    columns = 4 * 20 + 20  # heads of 20 columns for 64 values, and one for the mean
    assert many.kv_cache - few.kv_cache == 1024 * 2 * columns * 4
    assert many.working > few.working
    assert "likelihood" in plan_host_memory(as_likelihood(labels)).judged_by


@pytest.mark.parametrize("target", ["tensorrt", "llmapi"])
def test_targets_of_tensorrt_llm_refuse_likelihoods_with_the_reason(
    deploy: Deploy, target: str
) -> None:
    from tts.build.errors import ConfigError
    from tts.build.tensorrt.memory_plan import plan_memory

    wanted = as_likelihood(deploy()).model_copy(update={"target": target})
    with pytest.raises(ConfigError, match=r"likelihood, which target .* cannot compute") as refused:
        plan_memory(wanted)
    assert "without KV reuse" in str(refused.value)
    assert "prompted" in str(refused.value.hint)
