"""`tts gateway requests`: the requests that a gateway has kept, as a table and as lines."""

import json
import time

import pytest
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
        record.prompt, record.answer_tokens = PROMPT, 1234
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
    assert all(each in shown for each in kept)
    assert "1,234" in shown
    assert "1.00" in shown  # ms of the gateway
    assert shown.count("team-a") == 3
    assert "search" not in shown  # a column without a number
    assert "/page/" not in shown


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


def test_a_copy_can_be_read_anywhere(kept, tmp_path):
    copy = tmp_path / "copies" / "gateway.db"
    copy.parent.mkdir()
    database_file().rename(copy)
    assert rows() == []
    assert [row["id"] for row in rows("--file", copy)] == kept
