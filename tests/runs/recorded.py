"""A recorded run of two sessions, unpacked once for all tests of a process."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden.folders import unpacked

_PLACE = TemporaryDirectory(prefix="tts-recorded-")
RECORDED = unpacked("resumed", Path(_PLACE.name))
"""Read-only: log, run.json and summary.json."""
