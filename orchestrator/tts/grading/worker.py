"""The child process that runs math-verify: `python -m tts.grading.worker MB SECONDS`.

One JSON line per request, `[prediction, reference]`, and one per reply, `[outcome, reason]`; the
first line it writes is `["ready", ""]`. It ends at the end of its input, so it cannot outlive its
parent, and it limits itself to MB of address space and to SECONDS of time per request.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys

# The parent kills a late worker. The worker's own alarm is for the orphan whose parent was killed
# while a request ran: its default action ends the process even inside one long C call.
_ORPHAN_GRACE_S = 1.0


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    memory_bytes = int(sys.argv[1]) << 20
    alarm_s = float(sys.argv[2]) + _ORPHAN_GRACE_S
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # parsers print; replies are ours alone

    from .equivalence import compare
    from .verdict import Outcome, Reason

    _send(replies, "ready", "")
    for line in sys.stdin:
        prediction, reference = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        try:
            verdict = compare(prediction, reference)
        except MemoryError:
            # What sympy has cached would starve the next request: leave, a fresh worker follows.
            _send(replies, Outcome.UNDECIDED, Reason.MEMORY)
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(replies, verdict.outcome, verdict.reason)


def _send(descriptor: int, *fields: str) -> None:
    os.write(descriptor, json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    main()
