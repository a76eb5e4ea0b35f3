import hashlib
import re
import sqlite3
import stat

import pytest

from tts.build.errors import ConfigError
from tts.gateway.safety.keys import SEES_CHANGES_S, Keyring, KeyStore, keys_file
from tts.gateway.safety.limits import KeyLimits


@pytest.fixture
def file(tmp_path):
    return tmp_path / "gateway" / "keys.db"


@pytest.fixture
def store(file):
    store = KeyStore(file)
    yield store
    store.close()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_keys_lie_in_the_users_home_of_the_toolkit(monkeypatch, tmp_path):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    assert keys_file() == tmp_path / "gateway" / "keys.db"


def test_a_key_has_256_random_bits_behind_a_prefix_and_only_its_hash_is_kept(store, file):
    key, made = store.create("evaluation", KeyLimits(requests_per_minute=5))
    other, _ = store.create("evaluation", KeyLimits())
    assert re.fullmatch("tts_[0-9a-f]{64}", key)
    assert key != other
    assert store.all()[0] == made
    bytes_on_disk = b"".join(part.read_bytes() for part in file.parent.iterdir())
    assert hashlib.sha256(key.encode()).digest() in bytes_on_disk
    assert key.encode() not in bytes_on_disk
    assert key[4:].encode() not in bytes_on_disk


def test_only_the_owner_may_read_the_files(store, file):
    store.create("a", KeyLimits())
    assert store.all()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    modes = {part.name: stat.S_IMODE(part.stat().st_mode) for part in file.parent.iterdir()}
    assert modes == {"keys.db": 0o600, "keys.db-wal": 0o600, "keys.db-shm": 0o600}


def test_a_gateway_finds_valid_keys_with_their_limits(store, file):
    limits = KeyLimits(10, 1000, 2)
    key, made = store.create("a", limits)
    ring = Keyring(store)
    assert ring.find(key) == made
    assert ring.find(key).limits == limits
    for wrong in ("", "tts_", key[:-1], key + "0", key.upper(), "tts_\udcff", "ключ"):
        assert ring.find(wrong) is None


def test_changes_by_another_process_are_seen_in_time(store, file):
    clock = Clock()
    gateway = KeyStore(file)
    ring = Keyring(gateway, clock)
    assert not ring.required
    key, made = store.create("a", KeyLimits())
    clock.now += SEES_CHANGES_S
    assert ring.required
    assert ring.find(key) == made
    store.revoke("a")
    clock.now += SEES_CHANGES_S
    assert ring.find(key) is None
    assert ring.required  # revoking the last key opens nothing
    assert SEES_CHANGES_S <= 0.5
    gateway.close()


def test_what_is_in_memory_is_used_between_two_looks(store, file):
    clock = Clock()
    gateway = KeyStore(file)
    key, _ = store.create("a", KeyLimits())
    ring = Keyring(gateway, clock)
    store.revoke("a")
    assert ring.find(key)
    clock.now += SEES_CHANGES_S
    assert not ring.find(key)
    gateway.close()


def test_keys_are_revoked_by_id_or_by_a_name_that_is_clear(store):
    _, first = store.create("a", KeyLimits())
    _, second = store.create("a", KeyLimits())
    with pytest.raises(ConfigError, match="2 keys are named 'a'"):
        store.revoke("a")
    assert store.revoke(first.id).revoked
    assert store.revoke("a").id == second.id  # the only valid one of that name
    once = store.revoke("a").revoked
    assert store.revoke("a").revoked == once
    with pytest.raises(ConfigError, match="no key 'b'"):
        store.revoke("b")


def test_another_host_needs_a_key_and_then_needs_one_for_every_request(store):
    ring = Keyring(store)
    ring.require_for("127.0.0.1")
    ring.require_for("::1")
    assert not ring.required
    for host in ("0.0.0.0", "192.168.1.5", "::"):
        with pytest.raises(ConfigError, match="there are no keys"):
            ring.require_for(host)
    store.create("a", KeyLimits())
    open_ring = Keyring(store)
    open_ring.require_for("0.0.0.0")
    assert open_ring.required


def test_a_file_that_is_no_store_is_a_sentence(file):
    file.parent.mkdir(mode=0o700)
    file.write_bytes(b"not a database at all, not even a little" * 30)
    with pytest.raises(ConfigError, match="cannot be used"):
        KeyStore(file)


def test_a_file_that_is_held_by_others_is_waited_for(store, file):
    with sqlite3.connect(file) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM keys").fetchall()
        key, _ = store.create("a", KeyLimits())
    assert Keyring(store).find(key)
    reader.close()
