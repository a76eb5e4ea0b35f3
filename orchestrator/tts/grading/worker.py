"""The child process that runs math-verify: `python -m tts.grading.worker MB SECONDS`.

One JSON line per request, `["read", answer]` or `["compare", prediction, reference]`, and one per
reply, `[CPU seconds, kind, content]`; the first line it writes is `[0, "ready", null]`. It ends at
the end of its input, so it cannot outlive its parent, and it limits itself to MB of address space
and to SECONDS of CPU time per request: processor time and not the clock's, so that a busy machine
leaves nothing more undecided than an idle one.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from dataclasses import astuple
from typing import Any


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    # The default action ends the process even inside one long C call, and when its parent is gone.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    memory_bytes = int(sys.argv[1]) << 20
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # the user's, which cannot be raised
    if hard != resource.RLIM_INFINITY:
        memory_bytes = min(memory_bytes, hard)
    cpu_s = float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # parsers print; replies are ours alone

    from . import equivalence
    from .verdict import Outcome, Reason

    _send(replies, 0.0, "ready", None)
    for line in sys.stdin:
        task, *answers = json.loads(line)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            kind, content = _do(equivalence, task, answers)
        except MemoryError:
            # What sympy has cached would starve the next request: leave, a fresh worker follows.
            spent = time.process_time() - began
            _send(replies, spent, "verdict", [Outcome.UNDECIDED, Reason.MEMORY])
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(replies, time.process_time() - began, kind, content)


def _do(equivalence: Any, task: str, answers: list[str]) -> tuple[str, Any]:
    if task == "compare":
        return "verdict", astuple(equivalence.compare(*answers))
    read = equivalence.read(*answers)
    return "parsed", [read.texts, read.has_formula, read.sketch and read.sketch.to_json()]


def _send(descriptor: int, *fields: Any) -> None:
    # A reply may be longer than a pipe takes at once.
    line = json.dumps(fields).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


if __name__ == "__main__":
    main()
