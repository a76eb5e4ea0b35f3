"""The image of the gateway: what hadolint would say, and what it must not hold.

Nothing is built here; the manifests' tests check that they agree with it.
"""

import hashlib
import json
import re
import shlex
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


def last_stage() -> list[Instruction]:
    found = instructions()
    start = max(n for n, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def test_every_instruction_is_one_of_dockers() -> None:
    known = {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
    }
    assert {name for name, _ in instructions()} <= known | {"ENTRYPOINT", "CMD"}


def test_the_base_is_a_slim_python_of_a_named_version() -> None:
    values = dict(rest.split("=") for name, rest in instructions() if name == "ARG")
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert all(base == "python:${PYTHON}" for base in bases)
    assert re.fullmatch(r"3\.\d+-slim-[a-z]+", values["PYTHON"])


def test_nothing_is_compiled_and_no_tool_stays() -> None:
    runs = [rest for name, rest in instructions() if name == "RUN"]
    (installs,) = (run for run in runs if "pip install" in run)
    assert {"--only-binary=:all:", "--no-cache-dir"} <= set(shlex.split(installs))
    assert not any(re.search(r"apt|gcc|curl|wget|git", run) for run in runs)
    assert "pip" not in " ".join(rest for name, rest in last_stage() if name == "RUN")


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
        assert "requirements.lock has not the hash of downloaded/rich-15.0.0" in done.stderr
    else:
        assert (done.returncode, called) == (0, ["download", "install"]), done.stderr


def test_only_wheels_and_pins_enter_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored == ["*", "!constraints.txt", "!requirements.lock", "!dist/*.whl"]
    copies = [rest.split() for name, rest in instructions() if name == "COPY"]
    assert copies == [
        ["constraints.txt", "requirements.lock", "dist/*.whl", "/wheels/"],
        ["--from=install", "/opt/tts", "/opt/tts"],
    ]


def test_it_runs_as_the_user_of_the_manifests_who_is_not_root() -> None:
    stage = dict(last_stage())
    user, _, group = stage["USER"].partition(":")
    assert user == group == "10001"
    template = ROOT / "triton_repo/templates/deploy/gateway.yaml.j2"
    assert f"runAsUser: {user} " in template.read_text()
    created = " ".join(rest for name, rest in last_stage() if name == "RUN")
    assert f"--uid {user}" in created
    assert f"--gid {group}" in created


def test_it_starts_the_gateway_as_the_manifests_do() -> None:
    stage = dict(last_stage())
    assert json.loads(stage["ENTRYPOINT"]) == ["tts"]
    command = json.loads(stage["CMD"])
    assert command == [
        *("gateway", gateway.DEPLOYMENT_FILE),
        *("--host", "0.0.0.0", "--port", str(gateway.PORT)),
    ]
    assert f"TTS_HOME={gateway.HOME}" in stage["ENV"]
    assert stage["EXPOSE"] == str(gateway.PORT)


def test_it_is_healthy_when_its_engines_answer() -> None:
    words = dict(last_stage())["HEALTHCHECK"]
    check = json.loads(words[words.index("[") :])
    assert check[0] == "python"  # the image has no curl
    assert f"http://127.0.0.1:{gateway.PORT}{gateway.READY}" in check[-1]
    compile(check[-1], "healthcheck", "exec")
