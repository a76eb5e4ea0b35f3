"""A process that came close to its limit of memory is told so, and no other is."""

import subprocess
import sys

import pytest

from tts.engines.pipeline import SPARE, require_memory

LIMITED = """
import mmap, resource, sys
from pathlib import Path
from tts.engines.pipeline import SPARE, ShortOfMemoryError, require_memory
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
