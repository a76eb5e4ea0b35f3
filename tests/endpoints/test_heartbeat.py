"""When a request is given up, on virtual time."""

import asyncio

import pytest

from tts.base.errors import EndpointTimeout
from tts.endpoints.retry import Heartbeat
from tts.lab.simulation.scenario import run_virtual

SILENT = "The server has answered nothing for 10 s."


def ends(scene, limit_s=10.0):
    """When the wait for an answer ends that takes 35 s, and the error."""

    async def go():
        heartbeat = Heartbeat("The server", limit_s)
        beside = asyncio.create_task(scene(heartbeat))
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with heartbeat.limited():
                await asyncio.sleep(35)
            return now() - began, ""
        except EndpointTimeout as error:
            return now() - began, error.message
        finally:
            beside.cancel()

    return run_virtual(go())


def test_an_answer_may_take_any_time_while_others_are_answered():
    async def others(heartbeat):
        while True:
            await asyncio.sleep(9)
            heartbeat.beat()

    assert ends(others) == (pytest.approx(35), "")


def test_the_limit_begins_with_the_last_sign_of_work():
    async def one_other(heartbeat):
        await asyncio.sleep(4)
        heartbeat.beat()

    async def none(heartbeat):
        pass

    assert ends(one_other) == (pytest.approx(14), SILENT)
    assert ends(none) == (pytest.approx(10), SILENT)
    assert ends(none, limit_s=40.0) == (pytest.approx(35), "")


def test_silence_before_a_request_does_not_count_and_a_single_wait_may_be_longer():
    async def go():
        heartbeat = Heartbeat("The server", 10.0)
        heartbeat.beat()
        await asyncio.sleep(100)
        async with heartbeat.limited():
            await asyncio.sleep(9)
        async with heartbeat.limited(least_s=60.0):
            await asyncio.sleep(59)

    run_virtual(go())


def test_a_cancelled_wait_is_no_late_answer():
    async def go():
        heartbeat = Heartbeat("The server", 10.0)

        async def wait():
            async with heartbeat.limited():
                await asyncio.sleep(100)

        task = asyncio.create_task(wait())
        await asyncio.sleep(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(go())
