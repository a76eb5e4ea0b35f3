"""A pytest plugin: trials in forks of a process that has imported and collected everything.

`-p mutants.forks`, with two open descriptors in FORKS. A trial comes as a line of JSON from the
first: the `limits`, seconds that each test may take, and the `change`: none, or the file of a
mutant, its source, and the function that differs, by its qualified name and first line. A fork
gives that function the mutant's code and runs the tests up to the first failure; its exit status
goes to the second descriptor.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest

NOT_REPLACED = 77
"""The status of a trial whose function is not in memory as the mutant has it."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run each trial that comes in a fork, in place of pytest's own loop."""
    trials, replies = (int(descriptor) for descriptor in os.environ["FORKS"].split())
    items = {item.nodeid: item for item in session.items}
    gc.collect()
    memory = [thing for thing in gc.get_objects() if _is_ours(thing)]
    gc.freeze()  # what a collection in a fork would touch would be copied
    os.write(replies, b"ready\n")
    with os.fdopen(trials, encoding="utf-8") as lines:
        for line in lines:
            child = os.fork()
            if not child:
                _run(session, items, memory, json.loads(line))
            _, status = os.waitpid(child, 0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what the tests have left
            os.write(replies, b"%d\n" % os.waitstatus_to_exitcode(status))
    return True


def _is_ours(thing: object) -> bool:
    if type(thing) not in (FunctionType, functools._lru_cache_wrapper):  # isinstance may run code
        return False
    return (thing.__module__ or "").startswith("tts.")


def _run(
    session: pytest.Session, items: dict[str, pytest.Item], memory: list[Any], trial: dict[str, Any]
) -> NoReturn:
    status = 1
    try:
        os.setsid()
        if trial["change"] and not _replace(memory, **trial["change"]):
            os._exit(NOT_REPLACED)
        chosen = [items[test] for test in trial["limits"] if test in items]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            signal.setitimer(signal.ITIMER_REAL, trial["limits"][item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                os._exit(1)
        status = 0
    finally:
        os._exit(status)


def _replace(memory: list[Any], file: str, source: str, function: Sequence[str | int]) -> bool:
    """Give a function its code in another source; what was cached from the old one is forgotten.

    A module that is not imported yet will be from its file, where the mutant is as well.
    """
    if not any(getattr(module, "__file__", None) == file for module in [*sys.modules.values()]):
        return True
    compiled = compile(source, file, "exec", dont_inherit=True)
    new = [code for code in _codes(compiled) if _place(code) == tuple(function)]
    found = False
    for thing in memory:
        if not isinstance(thing, FunctionType):
            thing.cache_clear()
        elif thing.__code__.co_filename == file and _place(thing.__code__) == tuple(function):
            if len(new) != 1 or new[0].co_freevars != thing.__code__.co_freevars:
                return False
            thing.__code__ = new[0]
            found = True
    return found


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
