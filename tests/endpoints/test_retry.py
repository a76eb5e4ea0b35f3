"""Asking again, and giving up, on virtual time."""

import asyncio
import itertools

import pytest

from tts.base.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.endpoints.retry import LONGEST_WAIT_S, PATIENCE_S, AskedToWait, Heartbeat, retried
from tts.lab.simulation.scenario import run_virtual


def attempts_of(failures, *, lasting=0.0, back_at=0.0):
    """When each attempt was made, and how it ended, if the first ones fail so."""
    times = []
    left = iter(failures)

    async def attempt():
        times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(lasting)
        if failure := next(left, None):
            raise failure
        return "answer"

    async def go():
        try:
            now = asyncio.get_running_loop().time
            return await retried(attempt, lambda: now() < back_at)
        except EndpointError as error:
            return error

    return times, run_virtual(go())


@pytest.mark.parametrize("failure", [EndpointUnavailable("gone"), EndpointTimeout("late")])
def test_what_may_pass_is_asked_again(failure):
    times, end = attempts_of([failure] * 3)
    assert end == "answer"
    assert times == pytest.approx([0, 0.2, 0.6, 1.4])


def test_a_server_that_asks_for_a_wait_has_it_but_none_beyond_patience():
    times, end = attempts_of([AskedToWait("busy", 3.0)] * 2)
    assert (times, end) == ([0, 3, 6], "answer")
    times, _ = attempts_of([AskedToWait("busy", 0.1)])
    assert times == pytest.approx([0, 0.2])
    times, end = attempts_of([AskedToWait("busy", PATIENCE_S + 1)])
    assert (times, type(end)) == ([0], AskedToWait)


@pytest.mark.parametrize("failure", [RequestRefused("no"), EndpointError("nonsense")])
def test_what_would_fail_again_is_raised_at_once(failure):
    times, end = attempts_of([failure])
    assert end is failure
    assert times == [0]


def test_a_server_that_is_back_within_a_minute_is_survived():
    times, end = attempts_of([EndpointUnavailable("gone")] * 15)
    assert end == "answer"
    assert 50 < times[-1] <= PATIENCE_S
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert max(waits) == pytest.approx(LONGEST_WAIT_S)


def test_a_server_that_is_being_started_again_is_waited_for_however_long_it_loads():
    failures = [EndpointUnavailable("gone")] * 200
    times, _ = attempts_of(failures, back_at=10 * PATIENCE_S)
    assert 10.9 * PATIENCE_S < times[-1] <= 11 * PATIENCE_S
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert max(waits) == pytest.approx(LONGEST_WAIT_S)


def test_an_engine_lost_for_good_is_given_up_with_its_last_error():
    failures = [EndpointUnavailable(str(number)) for number in range(100)]
    times, end = attempts_of(failures)
    assert end is failures[len(times) - 1]
    assert PATIENCE_S - 5 < times[-1] <= PATIENCE_S


def test_time_that_an_attempt_took_counts():
    """A server that hangs is asked only once more."""
    times, end = attempts_of([EndpointTimeout("late")] * 100, lasting=120)
    assert isinstance(end, EndpointTimeout)
    assert len(times) == 2


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
