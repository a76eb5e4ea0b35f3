"""Processes in which untrusted input is read: what they may take, and how they are started."""

from __future__ import annotations

import os
import resource
import sys


def command(script: str) -> list[str]:
    """What runs a script of this package in a process of its own."""
    return [sys.executable, script]


def environment() -> dict[str, str]:
    """Its environment, in which it finds the modules that this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def limit(kind: int, most: int) -> None:
    """Lower a limit of this process, such as resource.RLIMIT_AS; one that is lower stays."""
    hard = resource.getrlimit(kind)[1]  # the user's, which cannot be raised
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))
