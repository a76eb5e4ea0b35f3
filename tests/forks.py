"""A real fork of the test's process, with a limit: what a function says there, or another user."""

import os
import select
import signal
import traceback
import warnings

import pytest

STRANGER = 54321
"""A user whom this machine does not know."""
LIMIT_S = 120  # for a broken test only


def said_in_a_fork(function):
    """The text that a function returns in a fork of this process, or its error's traceback."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of what is tested
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


def said_by_a_stranger(function):
    """The same where the fork is another user's; only root can test that.

    What the function imports must be there already: the stranger may not be able to read it.
    """
    if os.getuid() != 0:
        pytest.skip("only root can become another user")

    def call():
        os.setgroups([])
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        return function()

    return said_in_a_fork(call)
