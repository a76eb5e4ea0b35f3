"""Whether a tokenizer.json can be loaded at all: tried once, in a process with limits.

A file that has passed is remembered by its content, the library and these rules; later checks by
any process of this user cost nothing.
"""

from __future__ import annotations

import hashlib
import signal

import tokenizers

from tts.base.errors import WorkerUnavailable
from tts.base.input_files import Unreadable, as_text
from tts.base.marks import is_marked, mark
from tts.base.worker_process import Loss, WorkerLost, WorkerProcess

_CPU_S = 60.0
"""CPU time for all of it; tokenizers of the largest vocabularies take a few seconds."""
_MEMORY_GIB = 4
"""Address space of the whole process, several times of what those take."""
_RULES = 2
"""Raised where a check is added, so that files that passed before are tried again."""
_passed: set[str] = set()


def require_loadable(data: bytes) -> None:
    """Raise Unreadable saying what is wrong with the content of a tokenizer.json."""
    name = f"{hashlib.sha256(data).hexdigest()} {tokenizers.__version__} {_RULES}"
    if name in _passed:
        return
    if not is_marked("tokenizers", name):
        _try(data)
        mark("tokenizers", name)
    _passed.add(name)


def _try(data: bytes) -> None:
    worker = WorkerProcess(
        "tts.build.tokenizer_worker", "tries tokenizers", cpu_s=_CPU_S, memory_mb=_MEMORY_GIB << 10
    )
    memory = f"{_MEMORY_GIB} GiB of memory"
    try:
        wrong = worker.ask(as_text(data)).content.get("error")
    except WorkerUnavailable as error:
        raise Unreadable(f"no process could be started to try it in ({error.message})") from error
    except WorkerLost as error:
        doing = error.doing or "reading it"
        match error.loss:
            case Loss.CPU:
                wrong = f"{doing} took more than {_CPU_S:.0f} s"
            case Loss.MEMORY:
                wrong = f"it needs more than {memory}"
            case Loss.STALLED:
                wrong = f"{doing} did not come to an end"
            case Loss.CRASHED:
                how = (
                    f"by {signal.Signals(-error.status).name}"
                    if error.status < 0
                    else (f"with status {error.status}")
                )
                wrong = f"{doing} ended the process that did it {how}; it may use {memory}"
    finally:
        worker.reap()
    if wrong:
        raise Unreadable(wrong)
