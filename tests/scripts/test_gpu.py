"""The program for a GPU machine: its plan, on stand-ins of vLLM; its weights' tokenizer."""

import json
import sys
from pathlib import Path

import pytest
from scripts.bench import gpu
from tests.serving.started import Stage

from tts.build.model_config import known_model
from tts.build.spec import load_deployment
from tts.build.started.memory import budgets
from tts.build.tokenizer import Tokenizer


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(gpu, "DEMO_LENGTHS", {"generator": 160, "verifier": 160})
    return Stage(tmp_path, monkeypatch)


def measured(monkeypatch, out: Path, *words: str) -> dict:
    """What gpu.json holds after a dry run."""
    words = ["gpu", str(out), "--dry-run", "--problems", "2", "--n", "4", *words]
    monkeypatch.setattr(sys, "argv", words)
    gpu.main()
    return json.loads(next(out.glob("*/gpu.json")).read_text())


def test_a_dry_run_measures_every_schedule_beside_its_replay(stage, tmp_path, monkeypatch, capsys):
    report = measured(monkeypatch, tmp_path / "out")
    assert report["failures"] == []
    assert report["left_out"] == ["mps: needs a GPU", "mps-invariant: needs a GPU"]
    plain = [row for row in report["rows"] if row["case"]["name"] == "plain"]
    assert [row["schedule"] for row in plain] == list(gpu.CASES[0].schedules)
    assert len(report["rows"]) == 6
    for row in report["rows"]:
        assert row["is_complete"]
        assert row["trees"] == plain[0]["trees"], "the stand-in does not mind what is beside it"
        assert row["simulated_s"] > 0
        assert row["measures"]["generator_requests"] > 0
    invariant = [call["env"].get("VLLM_BATCH_INVARIANT") for call in stage.calls]
    assert invariant == [None, None, "1", "1"]
    assert "2 of 2" in capsys.readouterr().out


def test_what_has_no_time_is_left_out_and_what_fails_is_named(stage, tmp_path, monkeypatch):
    report = measured(monkeypatch, tmp_path / "short", "--minutes", "1")
    assert [line for line in report["left_out"] if "no time" in line] == [
        "plain: no time",
        "invariant: no time",
    ]
    assert stage.calls == report["rows"] == report["failures"] == []
    stage.starts("no room")
    monkeypatch.setattr(gpu, "CASES", (gpu.CASES[0], gpu.Case("again", schedules=("batched",))))
    report = measured(monkeypatch, tmp_path / "out")
    assert [line.partition(": ")[0] for line in report["failures"]] == ["plain"]
    assert "KV cache" in report["failures"][0]
    assert [row["case"]["name"] for row in report["rows"]] == ["again"]


def test_the_pair_of_random_weights_fits_one_gpu(tmp_path):
    gpu.write_tokenizer(tmp_path / "tokenizer")
    tokenizer = Tokenizer(tmp_path / "tokenizer")
    assert tokenizer.vocab_size == gpu.VOCABULARY
    ends = sum("\n\n" in tokenizer.decode([token]) for token in range(1_000, 8_000))
    assert ends == 7_000 / gpu.ENDS_ONE_IN
    for role, shape in gpu.SHAPES.items():
        config = json.dumps(known_model(Path(shape)).config)
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text(config)
        (tmp_path / role / "tokenizer.json").symlink_to(tmp_path / "tokenizer/tokenizer.json")
    options = gpu.argparse.Namespace(out=tmp_path, gpu="h100")
    for case in gpu.CASES:
        file = gpu.deployment_of(options, case, {role: tmp_path / role for role in gpu.SHAPES})
        deployment = load_deployment(file)
        assert (deployment.mps, deployment.deterministic) == (case.mps, case.deterministic)
        assert all(budget.kv_tokens > 100_000 for budget in budgets(deployment).values())
