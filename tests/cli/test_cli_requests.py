import json
import time

import pytest
from typer.testing import CliRunner

from tts.cli import app
from tts.gateway.database import database_file
from tts.gateway.ledger import Ledger
from tts.gateway.observability import Recorder


@pytest.fixture
def tts(monkeypatch, tmp_path):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, ["gateway", "requests", *arguments])


@pytest.fixture
def kept(tts):
    """The ids of three requests that a gateway of `demo` has kept."""
    recorder = Recorder(Ledger(database_file()), keeps_prompts=True)
    ids = []
    for model, outcome in (("demo", "ok"), ("demo:greedy", "ok"), ("demo", "cancelled")):
        record = recorder.begin("/v1/chat/completions")
        record.model, record.outcome, record.status = model, outcome, 200
        record.t1 = record.t2 = record.t0 + 0.001
        record.t3 = record.t4 = record.t5 = record.t0 + 0.5
        record.prompt, record.answer_tokens = 'Was,\n"wäre"?', 1234
        ids.append(record.id)
        recorder.end(record)
    recorder.close()
    return ids


def test_the_table_shows_the_latest_requests(tts, kept):
    shown = tts().stdout
    assert all(each in shown for each in kept)
    assert "1,234" in shown
    assert "1.00" in shown  # ms of the gateway
    assert [each for each in kept if each in tts("--last", "1").stdout] == kept[2:]


def test_json_lines_hold_every_field(tts, kept):
    rows = [json.loads(line) for line in tts("demo", "--format", "jsonl").stdout.splitlines()]
    assert [row["id"] for row in rows] == kept
    assert rows[0]["prompt"] == 'Was,\n"wäre"?'
    assert rows[0]["own_latency_s"] == pytest.approx(0.001)
    assert rows[0]["t3"] == pytest.approx(0.5)
    assert rows[0]["stream"] is False


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (["--last", "1"], [2]),
        (["--since", "1h"], [0, 1, 2]),
        (["--until", "1h"], []),
        (["--since", "2020-01-31", "--until", "2020-02-01T12:00"], []),
        (["--since", time.strftime("%Y-%m-%d", time.localtime(time.time() - 86400))], [0, 1, 2]),
    ],
)
def test_options_choose_requests(tts, kept, options, places):
    rows = [json.loads(line) for line in tts(*options, "--format", "jsonl").stdout.splitlines()]
    assert [row["id"] for row in rows] == [kept[place] for place in places]


def test_a_copy_can_be_read_anywhere(tts, kept, tmp_path):
    copy = tmp_path / "copies" / "gateway.db"
    copy.parent.mkdir()
    database_file().rename(copy)
    assert kept[0] not in tts().stdout
    assert kept[0] in tts("--file", str(copy)).stdout


def test_of_several_deployments_one_can_be_named(tts, kept):
    assert all(each in tts("demo").stdout for each in kept)
    assert kept[0] not in tts("second").stdout


def test_mistakes_are_sentences(tts, kept):
    done = tts("--since", "yesterday")
    assert done.exit_code != 0
    assert "is no date" in " ".join((done.output + str(done.exception)).replace("│", "").split())
