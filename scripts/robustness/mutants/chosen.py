"""A pytest plugin: the chosen ones of the tests collected, in their order, each within a limit.

`-p mutants.chosen`, with a file in CHOSEN: a JSON object from the id of a test to the seconds that
it may take. Longer ones end the whole process by SIGALRM: even a loop inside of C ends so. What is
done outside of tests has BETWEEN_S each time.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

BETWEEN_S = 300.0
_LIMITS: dict[str, float] = json.loads(Path(os.environ["CHOSEN"]).read_text(encoding="utf-8"))
signal.setitimer(signal.ITIMER_REAL, BETWEEN_S)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the chosen tests, in their order."""
    collected = {item.nodeid: item for item in items}
    items[:] = [collected[test] for test in _LIMITS if test in collected]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give each test its limit of time."""
    signal.setitimer(signal.ITIMER_REAL, _LIMITS[item.nodeid])
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, BETWEEN_S)
