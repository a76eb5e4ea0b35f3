"""Ctrl-C and SIGTERM around a command's event loop."""

import asyncio
import signal

import pytest

from tts.build.errors import Interrupted
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
