"""An engine does not hold its weights twice: the mapped file is given back after the first step."""

import mmap
import re
from pathlib import Path

import pytest
from tests.engines.host_requests import sampled

from tts.base import paths
from tts.build.openvino.transformer import WEIGHTS_FILE
from tts.engines.pipeline import release_mapped

PAGE = mmap.PAGESIZE


def resident(file: Path) -> int:
    """Bytes of a file that this process has in memory through its mappings."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = line.endswith(f" {file}")
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "weights with a space.bin"
    file.write_bytes(bytes(range(256)) * (64 * PAGE // 256))
    return file


def test_pages_of_the_file_are_dropped_and_come_back_unchanged(file: Path) -> None:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
        whole = bytes(view)
        assert resident(file) == 64 * PAGE
        assert release_mapped(file) == 64 * PAGE
        assert resident(file) == 0
        assert bytes(view) == whole


def test_what_was_written_to_a_private_mapping_is_kept(file: Path) -> None:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        view[0] = 77
        assert release_mapped(file) == 0
        assert view[0] == 77


def test_other_files_are_left_alone(file: Path) -> None:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert len(bytes(view)) == 64 * PAGE
        assert release_mapped(file.with_name("weights")) == 0
        assert resident(file) == 64 * PAGE


def test_an_engine_gives_its_weight_file_back_after_the_first_step(pair, open_host) -> None:
    weights = (paths.engine_dir(pair.name, "generator") / WEIGHTS_FILE).resolve()
    host = open_host()
    (first,) = host.run(sampled(n=1))
    assert resident(weights) == 0  # there was no second step to read rows of the embedding
    (again,) = host.run(sampled(n=1))
    assert again.token_ids == first.token_ids
