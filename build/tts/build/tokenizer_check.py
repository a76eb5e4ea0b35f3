"""Whether a tokenizer.json can be loaded at all: tried once, in a process with limits.

A file that has passed is known by its content, the library and these rules; it costs nothing more
from then on, in any process of this user.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from contextlib import suppress

import tokenizers

from . import paths, tokenizer_worker
from .errors import ConfigError
from .input_files import Unreadable
from .private import private_folder
from .worker_process import environment

_RULES = 1
"""Raised where a check is added, so that files that passed before are tried again."""
_passed: set[str] = set()


def require_loadable(data: bytes) -> None:
    """Raise Unreadable saying what is wrong with the content of a tokenizer.json."""
    digest = hashlib.sha256(data)
    digest.update(f"{tokenizers.__version__} {_RULES}".encode())
    name = digest.hexdigest()
    if name in _passed:
        return
    mark = paths.passed_tokenizers_dir() / name
    known = False
    with suppress(OSError, ConfigError):  # a folder that is not this user's says nothing
        known = mark.exists() and private_folder(mark.parent) == mark.parent
    if not known:
        _try(data)
        with suppress(OSError, ConfigError):  # without it, the next process tries again
            private_folder(mark.parent)
            mark.touch()
    _passed.add(name)


def _try(data: bytes) -> None:
    try:
        done = subprocess.run(
            [sys.executable, tokenizer_worker.__file__],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what the library says when it panics
            env=environment(),
            check=False,
        )
    except OSError as error:
        raise Unreadable(f"no process could be started to try it in ({error})") from error
    *did, answer = done.stdout.decode("utf-8", "replace").splitlines() or [""]
    if done.returncode == 0:
        if wrong := json.loads(answer).get("error"):
            raise Unreadable(wrong)
        return
    doing = answer or (did[-1] if did else "starting")
    raise Unreadable(f"{doing} {_ended(done.returncode)}")


def _ended(code: int) -> str:
    if code == -signal.SIGPROF:
        return f"took more than {tokenizer_worker.CPU_S} s"
    memory = f"{tokenizer_worker.MEMORY_BYTES >> 30} GiB of memory"
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
    return f"ended the process that did it {how}; it may use {memory}"
