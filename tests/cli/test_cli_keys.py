import re
from contextlib import closing

import pytest
from typer.testing import CliRunner

from tts.cli import app
from tts.gateway.database import database_file
from tts.gateway.ledger import Ledger
from tts.gateway.safety import Keyring


@pytest.fixture
def tts(monkeypatch, tmp_path):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, ["gateway", "keys", *arguments])


def test_a_key_is_printed_once_alone_on_stdout_and_works(tts):
    made = tts(
        "create", "my [b]eval[/b]", "--requests-per-minute", "60", "--concurrent-searches", "2"
    )
    assert made.exit_code == 0
    key = made.stdout.strip()
    assert re.fullmatch("tts_[0-9a-f]{64}", key)
    with closing(Ledger(database_file())) as ledger:
        found = Keyring(ledger.keys).find(key)
    assert found.name == "my [b]eval[/b]"
    listed = tts("list")
    assert "my [b]eval[/b]" in listed.stdout
    assert found.id in listed.stdout
    assert "valid" in listed.stdout
    assert key not in listed.output
    assert key[4:] not in listed.output


def test_a_revoked_key_stays_listed_as_such(tts):
    tts("create", "a")
    assert tts("revoke", "a").exit_code == 0
    assert "revoked" in tts("list").stdout


def test_mistakes_are_sentences(tts):
    assert "There are no keys yet" in tts("list").output
    unknown = tts("revoke", "b")
    assert str(unknown.exception).startswith("There is no key 'b'.")
    assert tts("create", "a", "--requests-per-minute", "0").exit_code == 2
