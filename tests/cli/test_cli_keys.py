"""`tts gateway keys`: a key is made, listed, changed, rotated and revoked, and shown once."""

import re
from contextlib import closing

import pytest
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
    assert tts("gateway", "keys", "list").out == ""
    assert "revoked" in tts("gateway", "keys", "list", "--all").out


def test_a_key_is_changed_and_rotated_by_its_name_and_a_mounted_one_is_not_printed(tmp_path):
    tts("gateway", "keys", "create", "a", "--requests-per-minute", "60", "--expires", "30d")
    options = ("--requests-per-minute", "0", "--tokens-per-day", "5", "--expires", "never")
    assert tts("gateway", "keys", "set", "a", *options, "--note", "team [b]A").code == 0
    assert "name what to change" in tts("gateway", "keys", "set", "a").said
    rotated = tts("gateway", "keys", "rotate", "a", "--grace", "12h")
    assert re.fullmatch("tts_[0-9a-f]{64}", rotated.out.strip())
    assert "stays valid until" in rotated.err
    assert "old secret until" in tts("gateway", "keys", "list").out
    again = tts("gateway", "keys", "rotate", "a", "--grace", "15m").err
    assert "The one before that, which was valid until" in again
    assert "is refused from now on" in tts("gateway", "keys", "set", "a", "--grace", "0").err
    assert "old secret" not in tts("gateway", "keys", "list").out
    assert "--grace" in tts("gateway", "keys", "rotate", "a", "--grace", "soon").said
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    mounted = tts("gateway", "keys", "rotate", "a", "--key-file", secret)
    assert (mounted.code, mounted.out) == (0, "")
    assert "is refused" in mounted.err
    listed = tts("gateway", "keys", "list").said
    assert all(part in listed for part in ("5 tokens per day", "team [b]A", "rotated", "valid"))
    assert "requests per minute" not in listed
    assert "(keys: 1)" in tts("gateway", "backup", tmp_path / "copy.db").err
    assert tts("gateway", "backup", tmp_path / "copy.db").code == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("keys", "create", ""), "'' is no name for a key"),
        (("keys", "create", "--", "-x"), "'-x' is no name"),
        (("keys", "create", "a\tb"), "is no name"),
        (("keys", "create", " a"), "is no name"),
        (("keys", "create", "a", "--model", ""), "'' names no model"),
        (("keys", "create", "a", "--model", "demo:nope"), "there is no strategy 'nope'"),
        (("keys", "create", "a", "--tokens-per-day", "9" * 20), "--tokens-per-day"),
        (("keys", "create", "a", "--expires", "0d"), "'0d' is neither"),
        (("keys", "create", "a", "--key-file", "/none"), "read: No such file or directory."),
        (("key", "list"), "There is no command 'key'. Did you mean keys?"),
        (("usage", "--since", "yesterday"), "'yesterday' is no day such as"),
    ],
)
def test_a_mistake_is_a_sentence(words, sentence):
    outcome = tts("gateway", *words)
    assert (outcome.code, sentence in re.sub(r"[\s│]+", " ", outcome.err)) == (2, True)
    assert tts("gateway", "keys", "list", "--json").out.strip() == "[]"
