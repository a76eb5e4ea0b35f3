"""Rendering a checkpoint's chat template, which may be hostile, in a process with limits.

One worker process serves all templates of this process and stays until it ends: a rendering costs
one exchange of a line each way. A worker that a template has ended is replaced for the next.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from typing import Any, Literal

from .worker_process import Loss, WorkerLost, WorkerProcess

_CPU_S = 2.0  # for one rendering; ordinary templates take less than a millisecond
_MEMORY_MB = 512  # of address space, the whole process
_WHY = {
    Loss.CPU: f"it took more than {_CPU_S:.0f} s",
    Loss.MEMORY: f"it took more than {_MEMORY_MB} MiB of memory",
    Loss.CRASHED: f"it took more than {_MEMORY_MB} MiB of memory, or crashed its process",
    Loss.STALLED: "its process got no processor time",
}


class TemplateFailed(Exception):
    """A template could not be rendered; the message says why, in the middle of a sentence."""

    def __init__(self, why: str, kind: Literal["invalid", "failed"]) -> None:
        super().__init__(why)
        self.kind = kind


_WORKER = WorkerProcess(
    "tts.build.template_worker", "renders chat templates", cpu_s=_CPU_S, memory_mb=_MEMORY_MB
)
atexit.register(_WORKER.reap)


def render(source: str, variables: Mapping[str, Any]) -> str:
    """The text of a template; raises TemplateFailed, or WorkerUnavailable."""
    try:
        said = _WORKER.ask({"source": source, "variables": dict(variables)}).content
    except WorkerLost as error:
        raise TemplateFailed(_WHY[error.loss], "failed") from error
    if "error" in said:
        raise TemplateFailed(said["error"], said["kind"])
    return str(said["text"])
