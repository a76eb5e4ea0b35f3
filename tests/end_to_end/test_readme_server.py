"""README: its commands and its program, on the real server, with the output that it shows."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.amounts import amount
from tests.end_to_end.gateways import gateway, reply
from tests.end_to_end.test_session_server import start

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.server


def command(words):
    """The one command of README that begins with these words, without `tts`."""
    (line,) = re.findall(rf"^tts ({words} .*)$", README, re.M)
    return shlex.split(line)


def test_the_program_prints_what_is_shown(served, tmp_path):
    found = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", README, re.M | re.S)
    process = start(served, found[1], tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == sorted(found[2].splitlines())  # results as they come


def test_the_quick_start_solves_benches_and_reports(served, tmp_path):
    """Its commands, as they stand but for how many problems there are."""
    out, _ = served.done(*command("solve"), "--out", tmp_path / "solved")
    (answer,) = re.findall(r"`(answer: \d+)`", README)
    assert answer in out
    words = [amount(1, 40) if word == "40" else word for word in command("bench")]
    out, _ = served.done(*words, "--out", tmp_path / "run")
    assert {"majority-vote", "best-of-n", "beam-search"} <= set(out.split())
    _, _, *options = command("report")
    assert options == ["--open"]
    assert served.run("report", tmp_path / "run")[0] == 0
    assert (tmp_path / "run" / "report.html").is_file()


def test_the_gateway_answers_the_request_that_is_shown(served):
    (body,) = re.findall(r"-d '(\{.*\})'", README)
    (path,) = re.findall(r"http://localhost:8080(\S+)", README)
    assert command("gateway") == ["gateway", "demo"]
    with gateway(served) as address:
        assert reply(address, path, json.loads(body)).json()["tts"]["answer"] == "37"
