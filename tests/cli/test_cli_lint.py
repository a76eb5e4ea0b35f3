"""`tts lint`, and the commands that it stops; in a process of its own."""

from pathlib import Path

import pytest
from tests.cli.test_cli import tts

from tts.build import paths

LLAMA = "llama-1b-prm-8b-h100-bf16"


def own(tmp_path: Path, **replaced: str) -> Path:
    text = (paths.deployments_dir() / f"{LLAMA}.yaml").read_text()
    for old, new in replaced.items():
        assert f" {old}: " in text
        text = text.replace(f" {old}: ", f" {old}: {new} #", 1)
    file = tmp_path / "own.yaml"
    file.write_text(text)
    return file


def test_the_command_tells_findings_and_counts_them(tmp_path: Path):
    code, out, err = tts("lint", "demo-gpu", home=tmp_path / "home")
    assert (code, err) == (0, "")
    assert out.endswith("\n\n0 errors, 0 warnings, 3 not checked\n")
    file = own(tmp_path, in_flight_requests="600", tokens="4000000")
    code, out, err = tts("lint", file, home=tmp_path / "home")
    assert (code, err) == (1, "")
    first, second, *_ = out.split("\n\n")
    assert first.startswith("error  memory plan: generator.kv_cache.tokens = 4000000")
    assert "\n  why: " in first
    assert "\n  fix: `tts plan " in first
    assert second.startswith("warning  generator.in_flight_requests: is 600")
    assert out.endswith("\n\n1 error, 1 warning, 7 not checked\n")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "command", [("build-engines", "--dry-run"), ("build-engines",), ("render",)]
)
def test_building_and_deploying_are_refused_on_errors(tmp_path: Path, command: tuple[str, ...]):
    name, *options = command
    code, out, err = tts(name, own(tmp_path, tokens="4000000"), *options, home=tmp_path / "home")
    assert (code, out) == (2, "")
    assert err.startswith("error  memory plan: generator.kv_cache.tokens = 4000000")
    assert "note  " not in err
    assert "\n\n1 error, 0 warnings, " in err
    assert not (tmp_path / "home").exists()


def test_a_warning_does_not_stop_anything(tmp_path: Path):
    file = own(tmp_path, in_flight_requests="600")
    code, out, err = tts("build-engines", file, "--dry-run", home=tmp_path / "home")
    assert (code, err) == (0, "1 warning; tts lint explains.\n")
    assert "trtllm-build" in out


def test_manifests_are_checked_where_they_were_written(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "manifests"
    assert tts("render", "demo-gpu", "--manifests", folder, home=home)[0] == 0
    code, out, _ = tts("lint", "demo-gpu", "--deep", "--manifests", folder, home=home)
    assert (code, out.splitlines()[-1]) == (0, "0 errors, 0 warnings, 2 not checked")
    file = folder / "compose.yaml"
    file.write_text(file.read_text().replace("shm_size: 2g", "shm_size: 64m"))
    code, out, err = tts("lint", "demo-gpu", "--manifests", folder, home=home)
    assert (code, err) == (1, "")
    assert out.startswith(f"error  {file}: is not as rendered")
    assert "  + services.triton.shm_size: '64m'\n" in out
    code, out, err = tts("lint", "demo", "--manifests", folder, home=home)
    assert (code, out) == (2, "")
    assert "manifests are for target tensorrt" in err
