"""Ctrl-C and SIGTERM around a command's event loop."""

import asyncio
import signal

import pytest

from tts.build.errors import Interrupted, Terminated
from tts.session.interrupts import interruptible

STOPPING = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def handlers():
    before = [signal.getsignal(number) for number in STOPPING]
    yield before
    for number, handler in zip(STOPPING, before, strict=True):
        signal.signal(number, handler)


async def work():
    await asyncio.sleep(0)
    return 7


async def work_that_is_interrupted():
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(60)


def test_after_the_loop_signals_do_again_what_they_did_before(handlers):
    assert interruptible(work(), print) == 7
    assert [signal.getsignal(number) for number in STOPPING] == handlers


def test_after_a_stop_further_signals_are_ignored(handlers):
    with pytest.raises(Interrupted):
        interruptible(work_that_is_interrupted(), print)
    assert [signal.getsignal(number) for number in STOPPING] == [signal.SIG_IGN] * 2


async def draining_command(drains):
    """Is asked to stop by SIGTERM, and comes to its end by itself if it drains."""
    signal.raise_signal(signal.SIGTERM)
    while not drains:
        await asyncio.sleep(0.001)
    return "drained"


def drain_once(drains):
    """Begins to drain with the first call."""

    def drain():
        drains.append(True)
        return len(drains) == 1

    return drain


def test_a_command_that_drains_comes_to_its_own_end_after_sigterm(handlers):
    drains = []
    ending = interruptible(draining_command(drains), print, drain=drain_once(drains))
    assert ending == "drained"
    assert [signal.getsignal(number) for number in STOPPING] == handlers


@pytest.mark.parametrize(
    ("second", "ended"), [(signal.SIGTERM, Terminated), (signal.SIGINT, Interrupted)]
)
def test_a_second_signal_stops_a_command_that_drains(handlers, second, ended):
    drains = []

    async def endless():
        await draining_command(drains)
        signal.raise_signal(second)
        await asyncio.Event().wait()

    with pytest.raises(ended) as end:
        interruptible(endless(), lambda line: None, drain=drain_once(drains))
    assert type(end.value) is ended
