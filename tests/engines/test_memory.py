"""An engine does not hold its weights twice, and one that runs short of memory says so."""

import mmap
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engines.host_requests import sampled

from tts.base import paths
from tts.build.openvino.transformer import WEIGHTS_FILE
from tts.engines.memory import SPARE, release_mapped, require_memory

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


LIMITED = """
import mmap, resource, sys
from pathlib import Path
from tts.engines.memory import SPARE, ShortOfMemoryError, require_memory
used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
limit = used + 4 * SPARE
resource.setrlimit(getattr(resource, sys.argv[1]), (limit, limit))
held = mmap.mmap(-1, int(float(sys.argv[2]) * SPARE), flags=mmap.MAP_PRIVATE)
if sys.argv[3] == "released":
    held.close()
try:
    require_memory()
except ShortOfMemoryError as error:
    sys.exit(str(error))
"""


def test_memory_without_a_limit_is_enough():
    require_memory()


@pytest.mark.parametrize(
    ("limit", "held", "then", "said"),
    [
        ("RLIMIT_AS", "2", "held", ""),
        ("RLIMIT_AS", "3.5", "held", "address space"),
        ("RLIMIT_AS", "3.5", "released", "address space"),
        ("RLIMIT_DATA", "3.9", "held", f"not even {SPARE >> 20} MiB"),
    ],
)
def test_a_limit_that_was_met_is_noticed_even_when_memory_is_free_again(limit, held, then, said):
    command = [sys.executable, "-c", LIMITED, limit, held, then]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert bool(ended.returncode) == bool(said), ended.stderr
    assert said in ended.stderr
