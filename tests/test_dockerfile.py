"""The image of the gateway, without building it: what it installs, and how it starts."""

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from tts.serving.repository import gateway

ROOT = Path(__file__).parents[1]
Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """Names and arguments, continued lines joined, comments left out."""
    lines = [
        line
        for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


@pytest.mark.parametrize("changed", [False, True])
def test_a_wheel_whose_hash_is_not_locked_is_not_installed(tmp_path: Path, changed: bool) -> None:
    """The shell of the first stage, with a stand-in for its pip."""
    (shell,) = (rest for name, rest in instructions() if name == "RUN" and "pip install" in rest)
    wheels, home = tmp_path / "wheels", tmp_path / "tts"
    for folder in (wheels / "downloaded", home / "bin"):
        folder.mkdir(parents=True)
    for own in (wheels, wheels / "downloaded"):
        (own / "tts_toolkit-0.1.0-py3-none-any.whl").write_bytes(b"ours")
    (wheels / "downloaded" / "rich-15.0.0-py3-none-any.whl").write_bytes(b"changed" * changed)
    hash_ = hashlib.sha256(b"").hexdigest()
    (wheels / "requirements.lock").write_text(f"rich==15.0.0 \\\n    --hash=sha256:{hash_}\n")
    (home / "bin" / "pip").write_text(f'#!/bin/sh\necho "$1" >>{home}/called\n')
    (home / "bin" / "pip").chmod(0o755)
    shell = shell.replace("/opt/tts", str(home)).replace("python -m venv", "test -d")
    done = subprocess.run(
        shell, shell=True, cwd=wheels, capture_output=True, text=True, check=False
    )
    called = (home / "called").read_text().split()
    if changed:
        assert (done.returncode, called) == (1, ["download"])
        assert "no lock file has the hash of downloaded/rich-15.0.0" in done.stderr
    else:
        assert (done.returncode, called) == (0, ["download", "install"]), done.stderr


def test_only_wheels_and_pins_enter_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored == ["*", "!requirements*.lock", "!dist/*.whl"]


def test_it_is_the_gateway_of_the_manifests_and_their_user() -> None:
    stage = dict(instructions())  # the last of each name
    user, _, group = stage["USER"].partition(":")
    template = (ROOT / "triton_repo/templates/deploy/gateway.yaml.j2").read_text()
    assert f"runAsUser: {user} " in template
    created = [rest for name, rest in instructions() if name == "RUN"][-1]
    assert f"--uid {user}" in created
    assert f"--gid {group}" in created
    assert json.loads(stage["ENTRYPOINT"]) == ["tts"]
    assert json.loads(stage["CMD"]) == [
        *("gateway", gateway.DEPLOYMENT_FILE),
        *("--host", "0.0.0.0", "--port", str(gateway.PORT)),
    ]
    assert f"TTS_HOME={gateway.HOME}" in stage["ENV"]
    assert stage["EXPOSE"] == str(gateway.PORT)
    check = json.loads(stage["HEALTHCHECK"].partition("CMD ")[2])
    assert check[0] == "python"  # the image has no curl
    assert f"http://127.0.0.1:{gateway.PORT}{gateway.READY}" in check[-1]
    compile(check[-1], "healthcheck", "exec")
