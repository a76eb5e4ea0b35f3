"""The users of a shared server: each holds a share of one lock, and the last one ends the server.

The kernel takes the share of a user that was killed. Once the process that has started a server is
gone its guard looks at the same lock (`command/guard.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tts.build import paths

from ..command import guard
from .locks import close_lock, lock_at_once, locked_after_a_stop


def take_share(name: str, check: Callable[[], None] = lambda: None) -> int:
    """Become a user of a deployment's server; waits while its last user, or its guard, stops it.

    `check` may raise to end the wait. Raises ServerError if that takes too long.
    """
    return locked_after_a_stop(paths.server_dir(name) / guard.USERS, shared=True, check=check)


@contextmanager
def give_back(share: int) -> Iterator[bool]:
    """End a use; whether it was the last one. Then no process can become a user within the
    block.
    """
    try:
        yield lock_at_once(share)
    finally:
        close_lock(share)
