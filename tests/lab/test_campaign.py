"""A run of a campaign: what the observer is told, what an error adds, Ctrl-C."""

import signal
import threading
from functools import partial

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.endpoints import Failing, Hanging

from tts.base.errors import CheckpointError, EndpointTimeout, Interrupted
from tts.lab import campaign as module
from tts.lab.campaign import Campaign, carry_out
from tts.lab.observer import Observer
from tts.problem import Problem
from tts.runs.config import RunConfig
from tts.session import AsyncSession
from tts.session.plan import Plan
from tts.session.solver import Outbox
from tts.session.strategy import choose

PROBLEMS = tuple(Problem(f"p{i}", f"Compute {i} + {i}.", str(2 * i)) for i in range(4))


class RecordingObserver(Observer):
    """An observer that keeps what it is told, and when."""

    def __init__(self):
        self.calls, self.run, self.threads = [], None, set()

    def say(self, line):
        self._note(("say", line))

    def began(self, run, title):
        self.run = run
        self._note(("began", title, run.total))

    def changed(self):
        self._note(("changed",))

    def ended(self):
        self._note(("ended", self.run.done))

    def _note(self, call):
        self.calls.append(call)
        self.threads.add(threading.current_thread())


@pytest.fixture
def begin(tiny_deployment, tmp_path, monkeypatch):
    """Begins or continues the run of a generator, before an observer; its progress."""
    plan = Plan(
        RunConfig(seed=1),
        tiny_deployment,
        PROBLEMS,
        choose("beam-search", tiny_deployment, {"n": 4}),
    )

    def begin(generator, observer, *, title="problems", **options):
        session = partial(AsyncSession, generator=generator, verifier=ScriptedVerifier())
        monkeypatch.setattr(module, "AsyncSession", session)
        campaign = observer.campaign = Campaign(observer, cold=False)
        folder = tmp_path / "run"

        async def plans():
            return {title: (plan, folder)}

        carry_out(campaign, plans(), folder, "again", **options)
        return campaign.progress

    return begin


def test_the_observer_sees_one_run_begin_and_end(begin, words):
    observer, outbox = RecordingObserver(), Outbox()
    generator = ScriptedGenerator(*words)
    progress = begin(generator, observer, title="mine", outbox=outbox)
    assert observer.calls[0] == ("began", "mine", 4)
    assert observer.calls[-1] == ("ended", 4)
    assert observer.calls[-2] == ("changed",)
    assert observer.threads == {threading.main_thread()}
    assert (progress.done, progress.judged, progress.began) == (4, 4, True)
    assert progress.right == sum(outbox.pop().correct for _ in range(4))


def test_a_run_that_fails_ends_for_the_observer_too_and_says_how_to_go_on(begin, words, tmp_path):
    observer = RecordingObserver()
    failing = Failing(ScriptedGenerator(*words), 30, EndpointTimeout("No answer.", hint="Wait."))
    with pytest.raises(EndpointTimeout) as caught:
        begin(failing, observer, saved="All")
    assert observer.calls[-1][0] == "ended"
    assert caught.value.hint.splitlines() == [
        f"All and saved in {tmp_path / 'run'}.",
        "Wait.",
        "Continue with: again",
    ]
    # the generator of a session is named in run.json; the same name continues it
    failing.left = 10**6
    assert begin(failing, RecordingObserver()).done == 4


def test_a_run_whose_engines_cannot_be_had_has_not_begun(begin, tmp_path, monkeypatch):
    """There is nothing to continue, and nobody is told to."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    observer = RecordingObserver()
    with pytest.raises(CheckpointError) as caught:
        begin(None, observer)
    assert not observer.campaign.progress.began
    assert "Continue with" not in (caught.value.hint or "")


def test_ctrl_c_ends_a_run_in_order(begin, tmp_path):
    hanging, observer = Hanging(), RecordingObserver()
    main = threading.main_thread().ident

    def press():
        hanging.asked.wait()
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press).start()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Interrupted):
            begin(hanging, observer)
    finally:  # a command ends after this, and ignores further ones until it has
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert ("say", "stopping ...") in observer.calls
    assert hanging.in_flight == 0
    assert (tmp_path / "run" / "events.jsonl").read_bytes().endswith(b"\n")
