"""How the gateway's process is set: one event loop, and threads that want the interpreter, too."""

from __future__ import annotations

import gc
import os
import sys

SWITCH_INTERVAL_S = 100e-6
"""After which a thread that waits for the interpreter gets it. granian hands over each request and
each body from a thread of its own: with Python's 5 ms, bodies that come together wait for one
another."""
YOUNG_OBJECTS = 10_000
"""How many new objects start a garbage collection. Python's 700 are those of a few requests: it
would look through all that run again and again, for a twentieth of the CPU time."""
EXPERIMENTS = "GRPC_EXPERIMENTS"
"""gRPC reads this variable when it is imported."""
POLLING = "-event_engine_client"
"""The thread that waits for completions reads the connection itself, rather than be woken by a pool
of threads that do: a fifth less CPU time for each token."""


def set_up() -> None:
    """To be called before anything imports gRPC. Experiments that the environment chooses stay."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if EXPERIMENTS not in os.environ:
        os.environ[EXPERIMENTS] = POLLING
        import grpc  # noqa: F401

        del os.environ[EXPERIMENTS]  # a server that is started here chooses for itself


def started() -> None:
    """To be called before requests are served: the garbage collector gets less to look through.

    What is there now is there to stay, and what the requests in flight hold is no garbage yet.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
