import hashlib
import os
import pwd
import re
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tts.base.errors import ConfigError
from tts.gateway.database import DatabaseUnusable, backup, database, database_file
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.record import ServedRequest, read_requests
from tts.gateway.safety.keys import ApiKey, Keyring, KeyStore, read_secret
from tts.gateway.safety.limits import KeyLimits
from tts.gateway.safety.usage import read_usage


@pytest.fixture
def store(file):
    return KeyStore(file)


@pytest.fixture
def gateway(store, file):
    """The hold of a running gateway on the file."""
    ledger = Ledger(file)
    yield ledger
    ledger.close()


def test_keys_lie_in_the_users_home_of_the_toolkit(monkeypatch, tmp_path):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    assert database_file() == tmp_path / "gateway" / "gateway.db"


def test_a_key_has_256_random_bits_behind_a_prefix_and_only_its_hash_is_kept(store, file):
    key, made = store.create("evaluation", KeyLimits(requests_per_minute=5))
    other, _ = store.create("another", KeyLimits())
    assert re.fullmatch("tts_[0-9a-f]{64}", key)
    assert key != other
    assert store.all()[0] == made
    bytes_on_disk = b"".join(part.read_bytes() for part in file.parent.iterdir())
    assert hashlib.sha256(key.encode()).digest() in bytes_on_disk
    assert key[4:].encode() not in bytes_on_disk


def test_only_the_owner_may_read_the_files(store, file, gateway):
    store.create("a", KeyLimits())
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    modes = {part.name: stat.S_IMODE(part.stat().st_mode) for part in file.parent.iterdir()}
    assert modes == {f"gateway.db{end}": 0o600 for end in ("", "-wal", "-shm")}


def test_a_gateway_finds_valid_keys_with_their_limits(store, file):
    limits = KeyLimits(10, 1000, 2)
    key, made = store.create("a", limits)
    ring = Keyring(Ledger(file).keys)
    assert ring.find(key) == made
    assert ring.find(key).limits == limits
    for wrong in ("", "tts_", key[:-1], key + "0", key.upper(), "tts_\udcff", "ключ"):
        assert ring.find(wrong) is None


def test_changes_by_another_process_are_seen_at_the_next_look(store, gateway, caplog):
    ring = Keyring(gateway.keys)
    assert not ring.required
    key, made = store.create("a", KeyLimits())
    assert ring.find(key) is None
    gateway.look()
    assert ring.required
    assert ring.find(key) == made
    store.revoke("a")
    assert ring.find(key)
    gateway.look()
    assert ring.find(key) is None
    assert ring.required  # revoking the last key opens nothing
    assert caplog.text == ""  # the file was not opened again


def test_no_two_valid_keys_have_one_name(store):
    _, first = store.create("a", KeyLimits())
    with pytest.raises(ConfigError, match=f"There is a key 'a' already: {first.id}"):
        store.create("a", KeyLimits(), models=["demo"])
    store.revoke("a")
    store.create("a", KeyLimits(), expires=time.time() - 1)
    store.create("a", KeyLimits())
    assert len(store.all()) == 3


def test_keys_are_revoked_by_id_or_by_a_name_that_is_clear(store, file):
    _, first = store.create("a", KeyLimits())
    _, second = store.create("b", KeyLimits())
    with sqlite3.connect(file) as earlier:  # versions that let two have one name
        earlier.execute("UPDATE keys SET name = 'a'")
    with pytest.raises(ConfigError, match="2 keys are named 'a'"):
        store.revoke("a")
    assert store.revoke(first.id).revoked
    assert store.revoke("a").id == second.id  # the only valid one of that name
    once = store.revoke("a").revoked
    assert store.revoke("a").revoked == once
    with pytest.raises(ConfigError, match="no key 'b'"):
        store.revoke("b")


def test_another_host_needs_a_key_and_then_needs_one_for_every_request(store, gateway):
    ring = Keyring(gateway.keys)
    ring.require_for("127.0.0.1")
    ring.require_for("::1")
    assert not ring.required
    for host in ("0.0.0.0", "192.168.1.5", "::"):
        with pytest.raises(ConfigError, match="there are no keys"):
            ring.require_for(host)
    store.create("a", KeyLimits())
    gateway.look()
    ring.require_for("127.0.0.1")
    assert ring.required
    ring.require_for("0.0.0.0")
    assert ring.required


def elsewhere(file, *statements):
    """What SQLite says in another process that executes these."""
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
        "for statement in sys.argv[2:]: connection.execute(statement)\n"
        "connection.close()\n"
    )
    words = [sys.executable, "-c", code, file, *statements]
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


def test_another_store_in_the_same_process_leaves_the_locks_of_the_first(store, file, gateway):
    key, _ = store.create("a", KeyLimits())
    KeyStore(file).all()
    assert "locked" in elsewhere(file, "PRAGMA journal_mode=DELETE")
    gateway.look()
    assert Keyring(gateway.keys).find(key)


def test_a_file_that_was_removed_or_replaced_is_read_anew(store, file, gateway, tmp_path, caplog):
    key, _ = store.create("a", KeyLimits())
    gateway.look()
    ring = Keyring(gateway.keys)
    assert ring.required
    for part in file.parent.iterdir():
        part.unlink()
    gateway.look()
    assert ring.find(key) is None
    assert ring.required
    key, _ = KeyStore(tmp_path / "other" / "gateway.db").create("b", KeyLimits())
    (tmp_path / "other" / "gateway.db").replace(file)
    gateway.look()
    assert ring.find(key)
    assert "is another file than before" in caplog.text
    # nobody is let in while it cannot be read
    (file.parent / "nonsense").write_bytes(b"no database at all, not even a little" * 300)
    (file.parent / "nonsense").replace(file)
    gateway.look()
    for _ in range(2):
        with pytest.raises(DatabaseUnusable):
            ring.find(key)


@pytest.mark.parametrize("start", [b"not a database at all", b"SQLite format 3\0"])
@pytest.mark.parametrize(
    "read", [Ledger, lambda file: KeyStore(file).all(), lambda file: list(read_requests(file))]
)
def test_a_file_that_is_no_store_is_a_sentence(file, start, read):
    file.parent.mkdir(mode=0o700)
    file.write_bytes(start + b"nonsense" * 600)
    with pytest.raises(DatabaseUnusable, match="cannot be used"):
        read(file)


OF_0_2_0 = """
CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, sha256 BLOB NOT NULL UNIQUE,
    created REAL NOT NULL, revoked REAL, requests_per_minute INTEGER, tokens_per_minute INTEGER,
    concurrent_searches INTEGER, tokens_per_day INTEGER, tokens_per_month INTEGER, expires REAL,
    models TEXT);
CREATE TABLE usage (day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, answer_tokens INTEGER NOT NULL,
    search_tokens INTEGER NOT NULL, verifier_tokens INTEGER NOT NULL,
    PRIMARY KEY (day, key, model)) WITHOUT ROWID;
CREATE TABLE requests (id TEXT NOT NULL, endpoint TEXT, time REAL NOT NULL, t1 REAL, t2 REAL,
    t3 REAL, t4 REAL, t5 REAL, t6 REAL, model TEXT, strategy TEXT, stream INTEGER NOT NULL,
    key TEXT, replica TEXT, outcome TEXT, status INTEGER NOT NULL, error TEXT,
    prompt_tokens INTEGER NOT NULL, answer_tokens INTEGER NOT NULL, search_tokens INTEGER NOT NULL,
    verifier_tokens INTEGER NOT NULL, prompt TEXT, answer TEXT, trace_parent TEXT);
CREATE INDEX requests_by_time ON requests (time);
PRAGMA journal_mode=WAL;
INSERT INTO usage VALUES ('2026-11-27', '1', 'demo', 2, 10, 5, 3, 100);
INSERT INTO requests VALUES ('r', '/v1/completions', 9.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 'demo',
    NULL, 0, '1', 'here', 'ok', 200, NULL, 10, 5, 3, 100, NULL, NULL, NULL);
"""
"""The file that version 0.2.0 makes."""


@pytest.mark.parametrize(
    "first", [Ledger, lambda file: KeyStore(file).all(), lambda file: list(read_requests(file))]
)
def test_a_file_of_0_2_0_is_read_and_written_whoever_opens_it_first(file, monkeypatch, first):
    file.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(file)) as old:
        old.executescript(OF_0_2_0)
        digest = hashlib.sha256(b"tts_old").digest()
        row = ("1", "old", digest, 1.0, None, 5, None, 2, None, None, None, '["demo:*"]')
        old.execute(f"INSERT INTO keys VALUES ({', '.join('?' * 12)})", row)
        old.commit()
    opened = first(file)
    store = KeyStore(file)
    (found,) = store.all()
    assert found == ApiKey("1", "old", KeyLimits(5, None, 2), 1.0, None, models=("demo:*",))
    assert [each.spent_tokens for each in read_usage(file, "2026-11-01", "2026-11-30")] == [18]
    (request,) = read_requests(file)
    assert (request.id, request.client) == ("r", None)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    key, made = store.create("new", KeyLimits(tokens_per_month=7), note="a note")
    assert made.created_by == pwd.getpwuid(os.getuid()).pw_name
    with closing(Ledger(file)) as ledger:
        request.client = "192.0.2.7"
        ledger.write([request])
        ring = Keyring(ledger.keys)
        assert ring.find("tts_old").name == "old"
        assert ring.find(key) == made
    assert [(each.last_used, each.last_client) for each in store.all()] == [
        (9.0, "192.0.2.7"), (None, None)
    ]  # fmt: skip
    assert store.revoke("old").revoked_by == made.created_by
    if isinstance(opened, Ledger):
        opened.close()


def test_0_2_0_goes_on_with_a_file_that_this_version_has_used(store, file):
    """The statements are its own."""
    request = ServedRequest(id="r", endpoint="/v1", time=9e9, t0=0.0, client="192.0.2.7")
    store.create("a", KeyLimits())
    store.rotate("a", grace_s=60)
    with closing(Ledger(file)) as ledger:
        ledger.write([request])
    with closing(sqlite3.connect(file)) as old:
        row = ("s", "/v1", 9e9 + 1, *[None] * 6, "demo", None, 0, "k", None, "ok", 200, None)
        row = (*row, 10, 5, 3, 100, None, None, None)
        old.execute(f"INSERT INTO requests VALUES ({', '.join('?' * 24)})", row)
        query = "SELECT * FROM requests WHERE time >= ? ORDER BY time DESC LIMIT ?"
        rows = old.execute(f"SELECT * FROM ({query}) ORDER BY time", (0.0, -1)).fetchall()
        assert [len(each) for each in rows] == [24, 24]
        assert rows[1] == row
        old.execute(
            "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "requests = requests + excluded.requests",
            ("2026-11-27", "k", "demo", 1, 10, 5, 3, 100),
        )
        columns = (
            "id, name, created, revoked, expires, models, requests_per_minute, "
            "tokens_per_minute, concurrent_searches, tokens_per_day, tokens_per_month, sha256"
        )
        key = ("1", "old", 1.0, None, None, "[]", *[None] * 5, b"digest")
        old.execute(f"INSERT INTO keys ({columns}) SELECT {', '.join('?' * 12)}", key)
        assert len(old.execute(f"SELECT {columns} FROM keys").fetchall()) == 2
        old.commit()
        assert [each.client for each in read_requests(file)] == ["192.0.2.7", None]
        old.execute(
            "DELETE FROM requests WHERE rowid IN "
            "(SELECT rowid FROM requests WHERE 1 ORDER BY time LIMIT ?)",
            (1,),
        )
        assert old.execute("SELECT * FROM clients").fetchall() == []
        old.commit()
    assert [each.name for each in store.all()] == ["old", "a"]
    assert [each.spent_tokens for each in read_usage(file, "2026-11-01", "2026-11-30")] == [18]


def test_a_copy_of_0_2_0_is_read_and_left_as_it_is(tmp_path):
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(copy)) as old:
        old.executescript(OF_0_2_0)
        old.execute("PRAGMA journal_mode=DELETE")
    copy.chmod(0o440)
    before = copy.read_bytes()
    (request,) = read_requests(copy, is_copy=True)
    assert (request.id, request.client) == ("r", None)
    for file, what in (
        (Path(__file__), "file is not a database"),
        (tmp_path / "no.db", "no such file"),
    ):
        with pytest.raises(DatabaseUnusable, match=f"{file} cannot be read .*{what}"):
            list(read_requests(file, is_copy=True))
    assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (before, 0o440)
    assert [each.name for each in tmp_path.iterdir()] == ["copy.db"]


def test_a_rotated_key_has_its_limits_and_its_old_secret_for_a_while(store, gateway):
    old, made = store.create("a", KeyLimits(5), expires=time.time() + 3600, models=["demo"])
    new, rotated = store.rotate("a", grace_s=60)
    gateway.look()
    ring, now = Keyring(gateway.keys), time.time()
    assert rotated.grace_ends == pytest.approx(now + 60, abs=5)
    assert rotated == replace(
        made, rotated=rotated.rotated, rotated_by=made.created_by, grace_ends=rotated.grace_ends
    )
    assert ring.find(new) == rotated
    assert (ring.find(old).id, ring.find(old).limits) == (made.id, made.limits)
    assert ring.find(old).is_valid(now + 50)
    assert not ring.find(old).is_valid(now + 61)
    newest, _ = store.rotate(made.id)
    gateway.look()
    assert ring.find(newest).is_valid(now)
    assert not ring.find(new).is_valid(time.time())
    assert (ring.find(old).id, ring.find(old).is_replaced) == (made.id, True)
    assert not ring.find(old).is_valid(time.time())  # of two before, one at most is valid
    assert [each.grace_ends for each in store.all()] == [None]
    store.revoke("a")
    gateway.look()
    assert ring.find(newest) is ring.find(new) is None


def test_a_grace_ends_with_its_key_and_earlier_on_request(store, gateway):
    end = time.time() + 3600
    old, _ = store.create("a", KeyLimits(), expires=end)
    assert store.rotate("a", grace_s=7200)[1].grace_ends == end
    assert store.change("a", expires=None).grace_ends > end
    assert store.change("a", grace_s=60).grace_ends < end
    assert store.change("a", grace_s=7200).grace_ends < end  # never longer
    assert store.change("a", grace_s=0).grace_ends is None
    gateway.look()
    assert not Keyring(gateway.keys).find(old).is_valid(time.time())


def test_an_id_names_its_key_alone(store, file):
    _, first = store.create("a", KeyLimits())
    with pytest.raises(ConfigError, match=r"There is a key .* already"):
        store.create(first.id, KeyLimits())
    _, second = store.create("b", KeyLimits())
    with sqlite3.connect(file) as earlier:  # versions that let a name be another's id
        earlier.execute("UPDATE keys SET name = ? WHERE id = ?", (first.id, second.id))
    assert store.revoke(first.id).id == first.id


def test_limits_expiry_models_and_note_of_a_key_are_changed(store):
    _, made = store.create("a", KeyLimits(5, 6), expires=time.time() - 1)
    changed = store.change("a", tokens_per_minute=None, tokens_per_day=9, note="b", models=["c"])
    assert changed == replace(made, limits=KeyLimits(5, tokens_per_day=9), note="b", models=("c",))
    store.create("a", KeyLimits())
    with pytest.raises(ConfigError, match="There is a key 'a' already"):
        store.change(made.id, expires=None)  # there would be two
    store.revoke(made.id)
    for change in (store.rotate, lambda key: store.change(key, note="c")):
        with pytest.raises(ConfigError, match=r"The key \w+ \(a\) is revoked"):
            change(made.id)


def test_a_secret_may_come_from_a_file_and_belongs_to_one_key(store, gateway, tmp_path):
    mounted = tmp_path / "secret"
    mounted.write_text("0123456789abcdef" * 2 + "\n")
    secret, made = store.create("a", KeyLimits(), secret=read_secret(mounted))
    gateway.look()
    assert Keyring(gateway.keys).find("0123456789abcdef" * 2) == made
    store.rotate("a")
    for again in (lambda: store.create("b", KeyLimits(), secret=secret),
                  lambda: store.rotate("a", secret=secret)):  # fmt: skip
        with pytest.raises(ConfigError, match=f"The key {made.id} has, or had"):
            again()
    for wrong in ("short", "with a space" * 9, "ключ" * 9, ""):
        mounted.write_text(wrong)
        with pytest.raises(ConfigError, match="32 or more printable"):
            read_secret(mounted)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_secret(tmp_path / "none")


def test_a_copy_is_whole_while_a_gateway_writes_and_for_its_owner_alone(
    store, file, gateway, tmp_path
):
    to = tmp_path / "copy.db"
    with pytest.raises(ConfigError, match="There is no"):
        backup(tmp_path / "none.db", to)
    with pytest.raises(ConfigError, match=r"cannot be made: .*No such file"):
        backup(file, tmp_path / "nowhere" / "copy.db")
    key, made = store.create("a", KeyLimits())
    gateway.look()
    backup(file, to)
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["copy.db"]
    before = to.read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        backup(file, to)
    assert to.read_bytes() == before
    restored = tmp_path / "other" / "gateway.db"
    restored.parent.mkdir()
    to.rename(restored)
    with closing(Ledger(restored)) as ledger:
        assert Keyring(ledger.keys).find(key) == made


def test_on_a_full_disk_nobody_is_told_to_remove_the_keys(tmp_path):
    def fill():
        with database(tmp_path / "keys.db", "CREATE TABLE a (b)") as connection:
            connection.execute("PRAGMA max_page_count = 1")
            connection.execute("INSERT INTO a VALUES (zeroblob(100000))")

    with pytest.raises(DatabaseUnusable, match="is full") as caught:
        fill()
    assert caught.value.hint.startswith("Free some space")
