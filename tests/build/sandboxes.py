"""Sandboxes of both kinds, and the processes that they leave."""

import sys

import psutil
import pytest

from tts.build.sandbox import Sandbox, find_bubblewrap
from tts.build.spec import ExecutionSpec

OPEN = "none-i-trust-all-generated-code"
BUBBLEWRAP = pytest.param(
    "bubblewrap",
    marks=pytest.mark.skipif(find_bubblewrap().path is None, reason=find_bubblewrap().description),
)
KINDS = [BUBBLEWRAP, OPEN]


def sandbox(kind, files=(), **limits):
    """A sandbox with limits that a test reaches soon."""
    return Sandbox(ExecutionSpec(**{"sandbox": kind, "memory_mb": 256, **limits}), files)


def python(code, *arguments):
    """The command that runs this code."""
    return [sys.executable, "-c", code, *arguments]


def left(mark):
    """The processes that have this word on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if mark in (process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found
