"""A real fork of the test's process, with a limit: what a function says there."""

import os
import select
import signal
import traceback

LIMIT_S = 120  # for a broken test only


def said_in_a_fork(function):
    """The text that a function returns in a fork of this process, or its error's traceback."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(readable)
            try:
                said = str(function())
            except BaseException:
                said = traceback.format_exc()
            os.write(writable, said.encode()[:4000])  # within what a pipe takes at once
        finally:
            os._exit(0)
    os.close(writable)
    try:
        if not select.select([readable], [], [], LIMIT_S)[0]:
            os.kill(child, signal.SIGKILL)
            return f"nothing within {LIMIT_S} s"
        return os.read(readable, 4000).decode()
    finally:
        os.close(readable)
        os.waitpid(child, 0)
