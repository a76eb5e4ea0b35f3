"""Every check: a deployment that breaks it alone, and what is said of it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.amounts import amount
from tests.build.tensorrt_deployments import deployments
from tests.checks.deployments import LLAMA, changed, serious

from tts.build.errors import TtsError
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.build.tensorrt.commands import steps
from tts.build.tensorrt.memory_plan import check_pools
from tts.build.tensorrt.model_shape import shape_of
from tts.build.tensorrt.target import workspace
from tts.checks import lint


@pytest.mark.parametrize("name", bundled_deployments())
def test_ready_made_deployments_have_nothing_wrong(name: str):
    assert [finding.where for finding in serious(load_deployment(name))] == []


def test_what_is_not_here_is_named():
    notes = [f.what for f in lint(load_deployment("llama-1b-prm-8b-h100-bf16"))]
    assert len(notes) == 7
    assert all(what.startswith("not checked: ") for what in notes)
    for text in ("config.json", "tokenizer.json", "engine is not built", "no model repository"):
        assert any(text in what for what in notes)


@pytest.mark.parametrize(
    ("base", "changes", "texts"),
    [
        (
            "demo",
            {"generator.max_seq_len": 4096},
            ("generator.max_seq_len is 4096", "Set generator.max_seq_len to at most"),
        ),
        (
            LLAMA,
            {"tensorrt.gpu": "a100-80g", "generator.precision": "fp8"},
            ("generator.precision is 'fp8' on a100-80g", "8.9", "Set generator.precision"),
        ),
        (
            LLAMA,
            {"verifier.tensorrt": {"tensor_parallel": 3}},
            ("verifier.tensorrt.tensor_parallel is 3", "32 attention heads", "Choose a"),
        ),
        (
            LLAMA,
            {"verifier.kv_cache.block_size": 8192, "verifier.max_num_tokens": 4096},
            ("verifier computes at most 4096 tokens", "block of 8192", "lower"),
        ),
        (
            LLAMA,
            {"generator.kv_cache.tokens": 4_000_000},
            ("memory plan", "generator.kv_cache.tokens = 4000000", "tts plan"),
        ),
        (
            "demo",
            {"verifier.kv_cache.tokens": 10**9},
            ("memory plan", "the verifier 83", "of memory", "there are", "Lower kv_cache.tokens"),
        ),
        (LLAMA, {"tensorrt.gpu": "rtx4090"}, ("memory plan", "GPU 0", "larger tensorrt.gpu")),
        (
            LLAMA,
            {"generator.tensorrt": {"kv_host_gib": 16}, "generator.kv_cache.reuse": False},
            ("tensorrt.kv_host_gib is 16", "kv_cache.reuse is false", "reuse to true"),
        ),
        (
            LLAMA,
            {"generator.in_flight_requests": 600},
            ("in_flight_requests: is 600", "max_batch_size is 512", "in_flight_requests to 512"),
        ),
        (
            "demo",
            {"verifier.labels": {"positive": "good", "negative": "-"}},
            ("verifier.labels.positive: 'good' is", "one token", "Set verifier.labels.positive"),
        ),
        (
            "demo-gpu",
            {"verifier.format": "math-shepherd", "verifier.step_tag": "done"},
            ("verifier.step_tag: 'done' is", "Set verifier.step_tag"),
        ),
        (
            "demo",
            {"generator.max_seq_len": 3},
            ("generator.max_seq_len: is 3, but", "go to the chat template alone", "Raise"),
        ),
        (
            "demo",
            {"generator.max_seq_len": 210},
            ("generator.max_seq_len: is 210", "are left for question and steps", "Raise"),
        ),
        (
            "demo",
            {
                "verifier.format": "custom",
                "verifier.template": {
                    "head": "1" * 600 + "{question}",
                    "answer": "\n\n",
                    "turn": "{label}\n\n",
                },
            },
            ("verifier.max_seq_len: is 512", "go to the dialogue alone", "Raise"),
        ),
        (
            "demo",
            {"generator.step_delimiter": "\u2603\u2603"},
            ("generator.step_delimiter: is '\u2603\u2603'", "no tokens", "Set generator.step_del"),
        ),
        (
            "demo",  # its tokens "\n" and "\n\n" spell so many as there are Fibonacci numbers
            {"generator.step_delimiter": "\n" * 60},
            ("generator.step_delimiter: is", "in 2,504,730,781,961 ways", "a shorter text"),
        ),
    ],
)
def test_a_broken_deployment_has_one_finding_that_names_field_value_and_remedy(
    base: str, changes: dict[str, Any], texts: tuple[str, ...]
):
    (finding,) = serious(changed(base, changes))
    for text in texts:
        assert text in str(finding)


def plans(deployment: Deployment) -> bool:
    try:
        check_pools(deployment)
        for role, spec in deployment.engines().items():
            steps(deployment, role, shape_of(spec.checkpoint), workspace(deployment, role))
    except TtsError:
        return False
    return True


@settings(
    max_examples=amount(15, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(deployment=deployments())
def test_every_deployment_that_plans_lints_clean(deployment: Deployment):
    assume(plans(deployment))
    assert [f for f in lint(deployment) if f.severity == "error"] == []
