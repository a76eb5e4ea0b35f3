"""A pytest plugin: which lines each test executes, and how long it takes.

`-p mutants.recording`, with a folder in RECORDED: coverage.py's data goes to its file `lines`,
with the id of the test as the context, the seconds of each test that passed to `seconds.json`.
Lines that are executed between tests, when a module is imported, have the empty context.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_FOLDER = Path(os.environ["RECORDED"])
_coverage = coverage.Coverage(
    data_file=str(_FOLDER / "lines"), config_file=False, include=[os.environ["RECORDED_SOURCES"]]
)
_seconds: defaultdict[str, float] = defaultdict(float)
_coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the lines of each test under its id."""
    _coverage.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of each phase that passed."""
    if report.passed:
        _seconds[report.nodeid] += report.duration


def pytest_sessionfinish() -> None:
    """Write both recordings."""
    _coverage.stop()
    _coverage.save()
    (_FOLDER / "seconds.json").write_text(json.dumps(_seconds), encoding="utf-8")
