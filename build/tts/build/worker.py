"""The inside of a worker process, which answers requests within limits of memory and time.

A worker is a module that calls `serve`, run as `python -m MODULE MB SECONDS` by `worker_process`.
A request is a line of JSON, `[number, content]`; its answer is one, too,
`[number, CPU seconds, content]`, without content where the memory did not suffice. Before the first
request the worker says `[0, 0.0, null]`. It ends at the end of its input, so it cannot outlive its
parent, and it limits itself to MB of address space and to SECONDS of CPU time per request:
processor time and not the clock's, so that a busy machine ends no request that an idle one would
answer.

What answers may be a generator: it yields what it does next and returns its answer. Each such line
goes to the parent as `[number, null, text]`, which then knows what the worker was lost in.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any


def serve(load: Callable[[], Callable[[Any], Any]]) -> None:
    """Answer requests until the input ends; `load` gives what answers one, within the limits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    # The default action ends the process even inside one long C call, and when its parent is gone.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    memory_mb, cpu_s = int(sys.argv[1]), float(sys.argv[2])
    limit(resource.RLIMIT_AS, memory_mb << 20)
    limit(resource.RLIMIT_CORE, 0)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print; answers are ours alone
    answer = load()
    _send(answers, 0, 0.0, None)
    for line in sys.stdin.buffer:
        number, content = json.loads(line)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            said = answer(content)
            if isinstance(said, Generator):
                said = _finish(said, partial(_send, answers, number, None))
        except MemoryError:
            # What libraries have cached would starve the next request: a fresh worker follows.
            _send(answers, number, time.process_time() - began)
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, number, time.process_time() - began, said)


def _finish(steps: Generator[str, None, Any], say: Callable[[str], None]) -> Any:
    while True:
        try:
            say(next(steps))
        except StopIteration as end:
            return end.value


def limit(kind: int, most: int) -> None:
    """Lower a limit of this process, such as resource.RLIMIT_AS; one that is lower stays."""
    hard = resource.getrlimit(kind)[1]  # the user's, which cannot be raised
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


def _send(descriptor: int, *fields: Any) -> None:
    # An answer may be longer than a pipe takes at once.
    line = json.dumps(fields).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]
