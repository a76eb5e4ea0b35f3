"""`tts gateway keys`: a key is made, listed and revoked, and shown once."""

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
