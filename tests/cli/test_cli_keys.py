"""`tts gateway keys`: a key is made, listed, changed, rotated and revoked, and shown once."""

import re
from contextlib import closing

from tests.cli.runner import tts

from tts.gateway.database import database_file
from tts.gateway.observability.ledger import Ledger
from tts.gateway.safety.keys import Keyring


def test_a_key_is_printed_once_alone_on_stdout_works_and_is_revoked():
    assert "There are no keys yet" in tts("gateway", "keys", "list").err
    name = "my [b]eval[/b]"
    made = tts("gateway", "keys", "create", name, "--requests-per-minute", "60")
    assert made.code == 0
    key = made.out.strip()
    assert re.fullmatch("tts_[0-9a-f]{64}", key)
    with closing(Ledger(database_file())) as ledger:
        found = Keyring(ledger.keys).find(key)
    assert (found.name, found.limits.requests_per_minute) == (name, 60)
    listed = tts("gateway", "keys", "list").said
    assert all(part in listed for part in (name, found.id, "valid"))
    assert key[4:] not in listed
    assert tts("gateway", "keys", "revoke", name).code == 0
    assert "revoked" in tts("gateway", "keys", "list").out


def test_a_key_is_changed_and_rotated_by_its_name_and_a_mounted_one_is_not_printed(tmp_path):
    tts("gateway", "keys", "create", "a", "--requests-per-minute", "60", "--expires", "30d")
    options = ("--requests-per-minute", "0", "--tokens-per-day", "5", "--expires", "never")
    assert tts("gateway", "keys", "set", "a", *options, "--note", "team [b]A").code == 0
    assert "name what to change" in tts("gateway", "keys", "set", "a").said
    rotated = tts("gateway", "keys", "rotate", "a", "--grace", "12h")
    assert re.fullmatch("tts_[0-9a-f]{64}", rotated.out.strip())
    assert "stays valid until" in rotated.err
    assert "--grace" in tts("gateway", "keys", "rotate", "a", "--grace", "soon").said
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    mounted = tts("gateway", "keys", "rotate", "a", "--key-file", secret)
    assert (mounted.code, mounted.out) == (0, "")
    assert "is refused" in mounted.err
    listed = tts("gateway", "keys", "list").said
    assert all(part in listed for part in ("5 tokens per day", "team [b]A", "rotated", "valid"))
    assert "requests per minute" not in listed
    assert tts("gateway", "backup", tmp_path / "copy.db").code == 0
    assert tts("gateway", "backup", tmp_path / "copy.db").code == 2
