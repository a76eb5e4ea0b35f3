"""`tts lint`, and the commands that it stops."""

import pytest
from tests.cli.runner import LLAMA, tts, written

FIRST = "error  memory plan: generator.kv_cache.tokens = 4000000"


def test_the_command_tells_findings_and_counts_them(tmp_path, home):
    done = tts("lint", "demo-gpu")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\n\n0 errors, 0 warnings, 3 not checked\n")
    changes = {"generator__in_flight_requests": 600, "generator__kv_cache__tokens": 4_000_000}
    done = tts("lint", written(tmp_path, LLAMA, **changes))
    assert (done.code, done.err) == (1, "")
    first, second, *_ = done.out.split("\n\n")
    assert first.startswith(FIRST)
    assert "\n  why: " in first
    assert "\n  fix: `tts plan " in first
    assert second.startswith("warning  generator.in_flight_requests: is 600")
    assert done.out.endswith("\n\n1 error, 1 warning, 7 not checked\n")
    assert not home.exists()


@pytest.mark.parametrize(
    "command", [("build-engines", "--dry-run"), ("build-engines",), ("render",)]
)
def test_building_and_deploying_are_refused_on_errors(tmp_path, home, command):
    name, *options = command
    file = written(tmp_path, LLAMA, generator__kv_cache__tokens=4_000_000)
    done = tts(name, file, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(FIRST)
    assert "note  " not in done.err
    assert "\n\n1 error, 0 warnings, " in done.err
    assert not home.exists()


def test_a_warning_does_not_stop_anything(tmp_path):
    file = written(tmp_path, LLAMA, generator__in_flight_requests=600)
    done = tts("build-engines", file, "--dry-run")
    assert (done.code, done.err) == (0, "1 warning; tts lint explains.\n")
    assert "trtllm-build" in done.out


def test_manifests_are_checked_where_they_were_written(tmp_path):
    folder = tmp_path / "manifests"
    assert tts("render", "demo-gpu", "--manifests", folder).code == 0
    done = tts("lint", "demo-gpu", "--deep", "--manifests", folder)
    assert (done.code, done.out.splitlines()[-1]) == (0, "0 errors, 0 warnings, 2 not checked")
    file = folder / "compose.yaml"
    file.write_text(file.read_text().replace("shm_size: 2g", "shm_size: 64m"))
    done = tts("lint", "demo-gpu", "--manifests", folder)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(f"error  {file}: is not as rendered")
    assert "  + services.triton.shm_size: '64m'\n" in done.out
    done = tts("lint", "demo", "--manifests", folder)
    assert (done.code, done.out) == (2, "")
    assert "manifests are for target tensorrt" in done.err
