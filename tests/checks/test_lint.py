"""Every check: a deployment that breaks it alone, and what is said of it."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.amounts import amount
from tests.build.tensorrt_deployments import deployments
from tests.checks.deployments import LLAMA, changed, serious

from tts.base.errors import TtsError
from tts.build.model_config import shape_of
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.build.tensorrt.commands import steps
from tts.build.tensorrt.memory_plan import check_pools
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


LARGE_TEMPLATE = {"head": "1" * 600 + "{question}", "answer": "\n\n", "turn": "{label}\n\n"}
BY_FIBONACCI = "\n" * 60
"""The demo's tokens "\\n" and "\\n\\n" spell it in as many ways as there are Fibonacci numbers."""


@pytest.mark.parametrize(
    ("base", "changes", "told"),
    [
        ("demo", {"generator.max_seq_len": 4096}, "generator.max_seq_len is 4096"),
        (
            LLAMA,
            {"tensorrt.gpu": "a100-80g", "generator.precision": "fp8"},
            "generator.precision is 'fp8' on a100-80g",
        ),
        (LLAMA, {"verifier.tensorrt": {"tensor_parallel": 3}}, "32 attention heads"),
        (
            LLAMA,
            {"verifier.kv_cache.block_size": 8192, "verifier.max_num_tokens": 4096},
            "verifier computes at most 4096 tokens",
        ),
        (LLAMA, {"generator.kv_cache.tokens": 4_000_000}, "generator.kv_cache.tokens = 4000000"),
        (LLAMA, {"tensorrt.gpu": "rtx4090"}, "GPU 0"),
        ("demo", {"verifier.kv_cache.tokens": 10**9}, "the verifier 83"),
        (
            LLAMA,
            {"generator.tensorrt": {"kv_host_gib": 16}, "generator.kv_cache.reuse": False},
            "tensorrt.kv_host_gib is 16, but kv_cache.reuse is false",
        ),
        (LLAMA, {"generator.in_flight_requests": 600}, "is 600, but max_batch_size is 512"),
        ("demo", {"verifier.labels": ["good", "-"]}, "verifier.labels: 'good' is"),
        (
            "demo-gpu",
            {"verifier.format": "math-shepherd", "verifier.step_tag": "done"},
            "verifier.step_tag: 'done' is",
        ),
        ("demo", {"generator.max_seq_len": 3}, "is 3, but 4 tokens go to the chat template alone"),
        ("demo", {"generator.max_seq_len": 210}, "is 210; 4 tokens go to the chat template"),
        (
            "demo",
            {"verifier.format": "custom", "verifier.template": LARGE_TEMPLATE},
            "verifier.max_seq_len: is 512",
        ),
        ("demo", {"generator.step_delimiter": "\u2603"}, "is '\u2603', which no tokens of"),
        ("demo", {"generator.step_delimiter": BY_FIBONACCI}, "spell in 2,504,730,781,961 ways"),
    ],
)
def test_a_broken_deployment_has_one_finding_that_names_field_value_and_remedy(base, changes, told):
    (finding,) = serious(changed(base, changes))
    assert told in str(finding)
    assert finding.fix
    # those of the memory are of both engines, and so are of no field
    assert finding.where.startswith((*changes, "generator", "verifier", "memory plan"))


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
