"""A plan carried out for a command: what the observer is told, what an error adds, Ctrl-C."""

import signal
import threading

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.endpoints import Failing, Hanging

from tts.build.errors import CheckpointError, EndpointTimeout, Interrupted
from tts.build.tokenizer import Tokenizer
from tts.lab.bench.single_run import run_plan, with_way_on
from tts.problem import Problem
from tts.runs.config import RunConfig
from tts.session import AsyncSession, RunProgress
from tts.session.interrupts import interruptible
from tts.session.plan import Plan
from tts.session.run import open_run
from tts.session.strategy import choose

PROBLEMS = tuple(Problem(f"p{i}", f"Compute {i} + {i}.", str(2 * i)) for i in range(4))


class Told:
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
def words(tokenizer_folder):
    encode = Tokenizer(tokenizer_folder).encode
    return [encode(word) for word in ("1", "22", r"\boxed{4}")], encode("\n\n")


def carry_out(deployment, generator, folder, observer, *, resume=False, **options):
    plan = Plan(
        RunConfig(seed=1), deployment, PROBLEMS, choose("beam-search", deployment, {"n": 4})
    )
    progress = RunProgress(len(PROBLEMS))
    session = AsyncSession(deployment, generator=generator, verifier=ScriptedVerifier())
    observer.progress = progress
    with open_run(plan, folder, resume=resume) as run:
        interruptible(run_plan(session, run, observer, progress, **options), observer.say)


def test_the_observer_sees_one_run_begin_and_end(tiny_deployment, words, tmp_path):
    told = Told()
    results = []
    carry_out(
        tiny_deployment,
        ScriptedGenerator(*words),
        tmp_path / "run",
        told,
        title="mine",
        on_result=results.append,
    )
    assert told.calls[0] == ("began", "mine", 4)
    assert told.calls[-1] == ("ended", 4)
    assert told.calls[-2] == ("changed",)
    assert told.threads == {threading.main_thread()}
    progress = told.progress
    assert (progress.done, progress.judged, progress.began) == (4, 4, True)
    assert progress.right == sum(result.correct for result in results)


def test_a_run_that_fails_ends_for_the_observer_too_and_says_how_far_it_came(
    tiny_deployment, words, tmp_path
):
    told = Told()
    failing = Failing(ScriptedGenerator(*words), 30, EndpointTimeout("No answer."))
    with pytest.raises(EndpointTimeout):
        carry_out(tiny_deployment, failing, tmp_path / "run", told)
    assert told.calls[-1][0] == "ended"
    assert told.progress.began
    again = Told()
    folder = tmp_path / "run"
    # the generator of a session is named in run.json; the same name continues it
    failing.left = 10**6
    carry_out(tiny_deployment, failing, folder, again, resume=True)
    assert again.progress.done == 4


def test_a_run_whose_engines_cannot_be_had_has_not_begun(tiny_deployment, tmp_path, monkeypatch):
    """There is nothing to continue, and nobody is told to."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    told = Told()
    with pytest.raises(CheckpointError):
        carry_out(tiny_deployment, None, tmp_path / "run", told)
    assert not told.progress.began


def test_ctrl_c_ends_a_run_in_order(tiny_deployment, tmp_path):
    hanging, told = Hanging(), Told()
    main = threading.main_thread().ident

    def press():
        hanging.asked.wait()
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press).start()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Interrupted):
            carry_out(tiny_deployment, hanging, tmp_path / "run", told)
    finally:  # a command ends after this, and ignores further ones until it has
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert ("say", "stopping ...") in told.calls
    assert hanging.in_flight == 0
    assert (tmp_path / "run" / "events.jsonl").read_bytes().endswith(b"\n")


def test_an_error_says_what_is_saved_and_how_to_continue(tmp_path):
    unanswered = EndpointTimeout("No answer.", hint="Wait.")
    command = f"tts bench --resume {tmp_path}"
    error = with_way_on(unanswered, "2 of 4 are done", tmp_path, command)
    assert error.hint.splitlines() == [
        f"2 of 4 are done and saved in {tmp_path}.",
        "Wait.",
        f"Continue with: tts bench --resume {tmp_path}",
    ]
