"""Blocking calls: callbacks in the caller's thread, Ctrl-C, a loop that runs already."""

import _thread
import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.session.endpoints import Hanging

from tts.base.errors import Interrupted, SessionError, Terminated
from tts.session.event_loop import Inbox, LoopThread, interruptible

QUESTION = "Compute 2 + 2."


def threads():
    return {thread.name for thread in threading.enumerate()}


def interrupt_when(event, then=lambda: None):
    """Ctrl-C in the main thread as soon as `event` is set; `then` is called a moment later."""
    main = threading.main_thread().ident

    def press():
        event.wait()
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.3)
        then()

    threading.Thread(target=press).start()


@pytest.fixture
def loop():
    loop = LoopThread()
    yield loop
    loop.stop()


def test_callbacks_run_in_the_thread_that_called(session):
    seen = set()
    session.solve(QUESTION, n=4, on_step=lambda step: seen.add(threading.current_thread()))
    assert seen == {threading.main_thread()}


def test_a_session_works_where_a_loop_runs_already(session):
    async def notebook():
        return session.solve(QUESTION, n=4).completions

    assert len(asyncio.run(notebook())) == 4


def test_a_callback_that_fails_ends_the_search_with_its_own_error(session):
    def fail(step):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        session.solve(QUESTION, n=4, on_step=fail)
    assert len(session.solve(QUESTION, n=4).completions) == 4


def test_ctrl_c_cancels_what_runs_on_the_engines_and_the_session_goes_on(opened):
    hanging = Hanging()
    with opened(generator=hanging) as session:
        for times in (1, 2):
            hanging.asked.clear()
            interrupt_when(hanging.asked)
            with pytest.raises(KeyboardInterrupt):
                session.solve(QUESTION, n=4)
            assert hanging.in_flight == 0
            assert hanging.cancelled >= 4 * times
    assert "tts session" not in threads()


def test_ctrl_c_leaves_a_run_that_can_be_continued(opened, tmp_path):
    hanging = Hanging()
    with opened(generator=hanging) as session:
        interrupt_when(hanging.asked)
        with pytest.raises(KeyboardInterrupt):
            list(session.solve_many([QUESTION], n=4, out=tmp_path / "run"))
    assert hanging.in_flight == 0
    log = (tmp_path / "run" / "events.jsonl").read_bytes()
    assert log.endswith(b"\n")


def test_closing_while_another_thread_waits_tells_that_thread(opened):
    hanging = Hanging()
    session = opened(generator=hanging)
    caught = []

    def solve():
        try:
            session.solve(QUESTION, n=4)
        except SessionError as error:
            caught.append(error)

    thread = threading.Thread(target=solve)
    thread.start()
    hanging.asked.wait()
    session.close()
    thread.join()
    assert "closed" in str(caught[0])
    assert hanging.in_flight == 0


def test_what_is_posted_comes_in_order_and_before_the_result(loop):
    inbox, heard = Inbox(), []
    say = inbox.posting(heard.append)

    async def work():
        for number in range(100):
            say(number)
        return len(heard)

    assert loop.run(work(), inbox) == 0
    assert heard == list(range(100))


def test_ctrl_c_that_does_not_wake_the_wait_is_heard_all_the_same(loop):
    """As one that comes between the last look at signals and the wait; nothing else ends it."""
    started = threading.Event()

    async def work():
        started.set()
        await asyncio.Event().wait()

    def press():
        started.wait()
        _thread.interrupt_main(signal.SIGINT)  # notes the signal, sends none

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())


def test_a_second_ctrl_c_does_not_cut_the_clean_up_short(loop):
    cancelled, cleaned = threading.Event(), []
    started = threading.Event()

    async def work():
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.to_thread(second.wait)
            cleaned.append(True)

    second = threading.Event()

    def press():
        main = threading.main_thread().ident
        started.wait()
        signal.pthread_kill(main, signal.SIGINT)
        cancelled.wait()
        signal.pthread_kill(main, signal.SIGINT)
        second.set()

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert cleaned == [True]


def test_a_program_that_forgets_to_close_its_session_still_ends(tmp_path):
    code = "from tts.session.event_loop import LoopThread; loop = LoopThread()"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys; import tts.session\n"
        "heavy = {'numpy', 'openvino', 'grpc', 'torch', 'transformers', 'sympy', 'pydantic'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_results_are_closed_is_raised_when_they_are(session):
    closed = []

    async def results():
        try:
            yield "a result"
        finally:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.sleep(0.2)
            closed.append(True)

    each = session._each(results(), Inbox())
    next(each)
    with pytest.raises(KeyboardInterrupt):
        each.close()
    assert closed == [True]


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
