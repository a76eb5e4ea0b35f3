"""`tts gateway requests`: the requests that a gateway has kept, as a table and as lines."""

import io
import json
import time

import pytest
from rich.console import Console
from tests.cli.runner import tts

from tts.gateway.database import database_file
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.recorder import Recorder
from tts.gateway.safety.keys import KeyStore
from tts.gateway.safety.limits import KeyLimits

PROMPT = 'Was,\n"wäre"?'


@pytest.fixture
def kept():
    """The ids of three requests that a gateway of `demo` has kept."""
    _, key = KeyStore(database_file()).create("team-a", KeyLimits())
    recorder = Recorder(Ledger(database_file()), keeps_prompts=True)
    ids = []
    for model, outcome in (("demo", "ok"), ("demo:greedy", "ok"), ("demo", "cancelled")):
        record = recorder.begin("/v1/chat/completions")
        record.model, record.outcome, record.status, record.key = model, outcome, 200, key.id
        record.t1 = record.t2 = record.t0 + 0.001
        record.t3 = record.t4 = record.t5 = record.t0 + 0.5
        record.prompt, record.answer_tokens, record.client = PROMPT, 1234, "192.0.2.7"
        ids.append(record.id)
        recorder.end(record)
        recorder.end(recorder.begin("/page/"))
    recorder.close()
    return ids


def rows(*options):
    out = tts("gateway", "requests", *options, "--format", "jsonl").out
    return [json.loads(line) for line in out.splitlines()]


def test_the_table_shows_the_latest_requests(kept):
    shown = tts("gateway", "requests").out
    assert shown.count("1,234") == shown.count("team-a") == shown.count("192.0.2.7") == 3
    assert "verifier" not in shown  # a column without a number
    assert "/page/" not in shown


def test_the_table_is_whole_at_100_columns(monkeypatch):
    recorder = Recorder(Ledger(database_file()))
    record = recorder.begin("/v1/chat/completions")
    record.model, record.key, record.client = (
        "demo:beam-search",
        "an-id",
        "2001:db8:85a3::8a2e:7334",
    )
    record.outcome, record.status, record.t6 = "cancelled", 200, record.t0 + 123.4
    record.prompt_tokens = record.answer_tokens = record.verifier_tokens = 1_234_567
    recorder.end(record)
    recorder.close()
    out = io.StringIO()
    monkeypatch.setattr("tts.cli.gateway_records.consoles", lambda: [Console(file=out, width=100)])
    assert tts("gateway", "requests").code == 0
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[-1] for line in lines if "1,234,567" in line] == ["123.40"]


def test_json_lines_hold_every_field(kept):
    first = rows("demo")[0]
    assert first["prompt"] == PROMPT
    assert first["own_latency_s"] == pytest.approx(0.001)
    assert first["t3"] == pytest.approx(0.5)
    assert first["stream"] is False


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (["demo"], [0, 1, 2]),
        (["second"], []),
        (["--last", "1"], [2]),
        (["--since", "1h"], [0, 1, 2]),
        (["--until", "1h"], []),
        (["--since", "2020-01-31", "--until", "2020-02-01T12:00"], []),
        (["--since", time.strftime("%Y-%m-%d", time.localtime(time.time() - 86400))], [0, 1, 2]),
    ],
)
def test_options_choose_requests(kept, options, places):
    assert [row["id"] for row in rows(*options)] == [kept[place] for place in places]


def test_an_empty_table_is_a_sentence_and_a_missing_file_an_error(tmp_path):
    for options in ((), ("nosuch",)):
        empty = tts("gateway", "requests", *options)
        assert (empty.code, empty.out) == (0, "")
        assert "No such requests" in empty.err
    missing = tts("gateway", "requests", "--file", tmp_path / "none.db")
    assert (missing.code, "none.db cannot be read" in missing.err) == (2, True)
    assert not (tmp_path / "none.db").exists()


def test_a_copy_can_be_read_anywhere(kept, tmp_path):
    copy = tmp_path / "copies" / "gateway.db"
    copy.parent.mkdir()
    database_file().rename(copy)
    assert rows() == []
    assert [row["id"] for row in rows("--file", copy)] == kept
