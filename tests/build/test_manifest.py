"""The hashes that a manifest holds of an engine's files."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tts.build.manifest import (
    MANIFEST_FILE,
    changed_content,
    new_manifest,
    read_manifest,
    write_record,
)

FILES = st.dictionaries(
    st.sampled_from(["config.json", "rank0.engine", "rank1.engine"]),
    st.binary(min_size=1, max_size=50),
    min_size=1,
)


@given(files=FILES, data=st.data())
def test_just_the_file_with_a_changed_byte_is_named(files, data):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        made = new_manifest(folder, folder / "none", (), {}, None, "a test")
        write_record(folder, MANIFEST_FILE, made)
        assert read_manifest(folder) == made
        assert changed_content(folder, made) == []
        name = data.draw(st.sampled_from(sorted(files)))
        at = data.draw(st.integers(0, len(files[name]) - 1))
        bit = data.draw(st.integers(0, 7))
        damaged = bytearray(files[name])
        damaged[at] ^= 1 << bit
        (folder / name).write_bytes(damaged)
        assert changed_content(folder, made) == [name]
        (folder / name).unlink()  # what is missing is told without reading anything
        assert changed_content(folder, made) == []
