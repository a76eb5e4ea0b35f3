"""How the gateway's process is set: one event loop, threads that want the interpreter, files."""

from __future__ import annotations

import gc
import os
import resource
import sys
from contextlib import suppress

SWITCH_INTERVAL_S = 100e-6
"""After which a thread that waits for the interpreter gets it; Python's is 5 ms. gRPC hands over
what it has read from a thread of its own."""
YOUNG_OBJECTS = 100_000
"""How many new objects start a garbage collection. Python's 700 are those of a few requests: it
would look through all that run again and again. A request leaves nothing in circles; a burst of 256
holds 50,000 objects, and to look through them took a tenth of its CPU time."""
EXPERIMENTS = "GRPC_EXPERIMENTS"
"""gRPC reads this variable when it is imported."""
POLLING = "-event_engine_client"
"""The thread that waits for completions reads the connection itself, rather than be woken by a pool
of threads that do: a fifth less CPU time for each token."""

MAX_CONNECTIONS = 16_384
"""At a time; more wait to be accepted."""
_OTHER_FILES = 512
"""Left to files and to connections with engines."""


def set_up() -> None:
    """To be called before anything imports gRPC. Experiments that the environment chooses stay."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if EXPERIMENTS not in os.environ:
        os.environ[EXPERIMENTS] = POLLING
        import grpc  # noqa: F401

        del os.environ[EXPERIMENTS]  # a server that is started here chooses for itself


def started() -> None:
    """To be called before requests are served: the garbage collector gets less to look through.

    All objects so far are there to stay, and those that requests in flight hold are no garbage yet.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def max_connections() -> int:
    """How many there may be at a time, after the process has asked for as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(64, min(MAX_CONNECTIONS, soft - _OTHER_FILES))
    return MAX_CONNECTIONS
