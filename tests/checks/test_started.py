"""What `tts lint` finds of engines before they are started."""

import socket
import stat

import pytest
from tests.checks.deployments import changed

from tts.checks import lint, started

PAIR = "qwen3-8b-prm-7b-h100-vllm"


def findings(deployment):
    checks = [*started.CHECKS]
    return [each for each in lint(deployment, checks) if each.severity != "note"]


@pytest.mark.parametrize(
    ("base", "changes", "message", "severity"),
    [
        (PAIR, {"gpu": "rtx4090"}, "do not fit GPU 0", "error"),
        (PAIR, {"generator.kv_gib": 60}, "the pools as stated take 60.00 GiB", "error"),
        (PAIR, {"gpu": "a100-80g", "generator.precision": "fp8"}, "fp8 needs compute", "error"),
        (PAIR, {"verifier.target": "sglang"}, "sglang 0.5.23 does not give", "error"),
        (PAIR, {"verifier.max_seq_len": 8192}, "but the model has 4096 positions", "error"),
        (
            PAIR,
            {"generator.extra_args": ["--max-modl-len", "1"]},
            "0.33.0 does not know (the engine refuses to start). Did you mean --max-model-len?",
            "warning",
        ),
        (PAIR, {"generator.container": "vllm/vllm-openai:v0.20.1"}, "is vllm 0.20.1;", "warning"),
        ("smollm2-llamacpp-cpu", {"generator.max_batch_size": 10**6}, "needs 43945", "error"),
    ],
)
def test_what_can_be_known_before_a_start(base, changes, message, severity):
    (finding,) = findings(changed(base, changes))
    assert (message in str(finding), finding.severity) == (True, severity)
    assert finding.fix


def test_a_port_that_something_else_has():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (finding,) = findings(changed(PAIR, {"generator.port": port}))
    assert f"is {port}, where nothing can listen now" in finding.what


@pytest.mark.parametrize(("version", "count"), [("0.33.0", 0), ("0.33.1", 1), ("0.31.0", 1)])
def test_the_version_beside_a_program(tmp_path, version, count):
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(stat.S_IRWXU)
    record = tmp_path / "lib/python3.12/site-packages" / f"vllm-{version}.dist-info"
    record.mkdir(parents=True)
    (record.parent / f"vllm_flash_attn-{version}.dist-info").mkdir()
    changes = {f"{role}.executable": str(program) for role in ("generator", "verifier")}
    warnings = findings(changed(PAIR, changes))
    assert len(warnings) == 2 * count
    assert all(version in each.what for each in warnings)


@pytest.mark.parametrize(
    ("version", "severities"), [("1.2.1", ["error"]), ("1.3.0rc22", ["warning"])]
)
def test_an_installed_trtllm_serve_that_gives_no_exact_labels(tmp_path, version, severities):
    program = tmp_path / "bin" / "trtllm-serve"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(stat.S_IRWXU)
    (tmp_path / "lib/python3.12/site-packages" / f"tensorrt_llm-{version}.dist-info").mkdir(
        parents=True
    )
    changes = {f"{role}.target": "trtllm-serve" for role in ("generator", "verifier")}
    changes["generator.executable"] = str(program)
    graded = changed("qwen3-8b-graded-l40s-vllm", changes)
    assert [each.severity for each in findings(graded)] == severities
