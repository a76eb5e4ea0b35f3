"""`tts tune` on embedded engines: what it says, what it writes, and what it refuses."""

import json
import os
import signal

import pytest
from tests.end_to_end.commands import quiet

from tts.base import paths
from tts.build.spec import load_deployment
from tts.runs.folder import read_config, write_json

BUNDLED = paths.deployments_dir() / "demo.yaml"

pytestmark = pytest.mark.xdist_group("test_tune")  # they share two measurements


@pytest.fixture(scope="module")
def tts(tmp_path_factory):
    with quiet(tmp_path_factory.mktemp("home")) as tts:
        yield tts


@pytest.fixture(scope="module")
def own(tts, tmp_path_factory):
    """The demo pair with small batches, so that there are few loads to try."""
    text = BUNDLED.read_text()
    for old, new in (
        ("../checkpoints", str(BUNDLED.parent.parent / "checkpoints")),
        ("server:\n", "server:\n  kind: embedded\n"),
        ("max_batch_size: 64 ", "max_batch_size: 2 "),
        ("max_batch_size: 64", "max_batch_size: 4"),
        ("in_flight_requests: 64", "in_flight_requests: 7"),
        ("in_flight_tokens: 4096", "in_flight_tokens: 777"),
    ):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path_factory.mktemp("deployment") / "own.yaml"
    file.write_text(text)
    tts.done("build-engines", file, "--no-verify")
    return file


@pytest.fixture(scope="module")
def tuned(tts, own, tmp_path_factory):
    """A result with the run that it recorded, and what was printed."""
    folder = tmp_path_factory.mktemp("tuned")
    problems = own.with_name("problems.jsonl")
    asked = [{"problem": f"Compute (({i} + 12) - 20) + 7."} for i in (31, 40, 53)]
    problems.write_text("".join(json.dumps(each) + "\n" for each in asked))
    out, _ = tts.done("tune", own, "--dataset", problems, "--seconds", 1, "--out", folder)
    return folder, out


def test_both_engines_are_measured_and_nothing_is_written(tuned, own):
    folder, out = tuned
    result = json.loads((folder / "tune.json").read_text())
    loads = {
        role: [level["load"] for level in engine["levels"]]
        for role, engine in result["engines"].items()
    }
    assert loads["generator"] == [1, 2, 4]
    assert loads["verifier"][0] >= 128
    for engine in result["engines"].values():
        assert all(level["repeats"] >= 2 for level in engine["levels"])
        assert all(level["tokens_per_s"] > 0 for level in engine["levels"])
        assert engine["requests"] > 50
    for sample in result["engines"]["generator"]["samples"]:
        assert sample["requests_per_s"] > 0
        assert sample["latency_s"] > 0
    assert 1 <= result["policy"]["generator"]["proposed"] <= 2
    assert result["policy"]["verifier"]["proposed"] >= 512
    for words in ("generator: each load measured", "verifier: each load measured", "tokens/s"):
        assert words in out
    assert "-  in_flight_requests: 7 " in out
    assert "--write makes this change." in out
    assert "in_flight_requests: 7 " in own.read_text()


def test_writing_changes_the_two_numbers_only(tts, tuned, own, tmp_path):
    folder, _ = tuned
    file = tmp_path / "own.yaml"
    before = own.read_text()
    file.write_text(before)
    run = folder / "run"
    out, err = tts.done(
        "tune", file, "--run", run, "--seconds", 1, "--out", tmp_path / "tune", "--write"
    )
    assert "Recording" not in err
    assert f"Written to {file}" in out
    spec = load_deployment(file)
    policy = json.loads((tmp_path / "tune" / "tune.json").read_text())["policy"]
    assert spec.generator.in_flight_requests == policy["generator"]["proposed"]
    assert spec.verifier.in_flight_tokens == policy["verifier"]["proposed"]
    changed = [
        (old, new)
        for old, new in zip(before.splitlines(), file.read_text().splitlines(), strict=True)
        if old != new
    ]
    assert [old.split()[:2] for old, _ in changed] == [
        ["in_flight_requests:", "7"],
        ["in_flight_tokens:", "777"],
    ]
    assert all(old.partition("#")[1:] == new.partition("#")[1:] for old, new in changed)


def test_ctrl_c_shows_what_was_measured_so_far(tts, tuned, own, tmp_path):
    run = tuned[0] / "run"
    out = tmp_path / "tune"
    process = tts.start("tune", own, "--run", run, "--seconds", 1, "--out", out, "--write")
    before = own.read_text()
    for line in process.stderr:
        if "Measuring the verifier" in line:
            break
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "This is a bug" not in err
    assert "generator: each load measured" in printed
    assert "Written" not in printed
    assert own.read_text() == before
    assert list(json.loads((out / "tune.json").read_text())["engines"]) == ["generator"]


def test_a_result_is_not_written_over(tts, tuned, own):
    code, _, err = tts.run("tune", own, "--out", tuned[0])
    assert code == 1
    assert "already holds a tune result" in err


def test_a_run_that_does_not_fit_is_refused_before_anything_starts(tts, tuned, own, tmp_path):
    code, _, err = tts.run("tune", own, "--run", tmp_path / "nowhere")
    assert code == 2
    assert "There is no folder" in err
    run = tuned[0] / "run"
    other = tmp_path / "run"
    other.mkdir()
    config = read_config(run)
    write_json(other / "run.json", {**config, "deployment": "llama"})
    code, _, err = tts.run("tune", own, "--run", other)
    assert code == 1
    assert "is one of 'llama', not of 'demo'" in err
    write_json(other / "run.json", config)
    code, _, err = tts.run("tune", own, "--run", other)
    assert code == 1
    assert "holds 0 requests to the generator" in err
    assert "Starting" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_file_without_permission_is_refused_before_anything_is_measured(tts, own):
    own.chmod(0o400)
    try:
        code, _, err = tts.run("tune", own, "--write")
    finally:
        own.chmod(0o600)
    assert code == 2
    assert "permission denied" in err
    assert "Starting" not in err
