"""Rendering a checkpoint's chat template, which may be hostile, in a process with limits.

One worker process serves all templates of this process and stays until it ends: a rendering costs
one exchange of a line each way. A worker that a template has ended is replaced for the next.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from . import template_worker
from .limited_process import command, environment


class TemplateFailed(Exception):
    """A template could not be rendered; the message says why, in the middle of a sentence."""

    def __init__(self, why: str, kind: Literal["invalid", "failed"]) -> None:
        super().__init__(why)
        self.kind = kind


class _Worker:
    """The worker process, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, line: str) -> str:
        """The answer to a request; empty if the request has ended the worker."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = _start()
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.write(line + "\n")
                process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                self._close()
            return answer

    def close(self) -> None:
        """End the worker, if there is one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


_WORKER = _Worker()
atexit.register(_WORKER.close)


def render(source: str, variables: Mapping[str, Any]) -> str:
    """The text of a template; raises TemplateFailed."""
    answer = _WORKER.ask(json.dumps({"source": source, "variables": dict(variables)}))
    if not answer:
        raise TemplateFailed(
            f"it took more than {template_worker.CPU_S:.0f} s or "
            f"{template_worker.MEMORY_BYTES >> 20} MiB of memory",
            "failed",
        )
    said = json.loads(answer)
    if "error" in said:
        raise TemplateFailed(said["error"], said["kind"])
    return str(said["text"])


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(template_worker.__file__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what the interpreter says when its memory ends
        encoding="utf-8",
        env=environment(),
    )
