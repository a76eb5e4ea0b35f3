"""Runs: results as they come, folders, resuming, the machine's use, a power cut."""

import asyncio
import itertools
import os
import sys
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.endpoints import Failing, HangingFrom

from tts.base.errors import ConfigError, DatasetError, EndpointTimeout, RunError
from tts.lab.bench.single_run import resume_bench
from tts.lab.observer import Observer
from tts.problem import Problem
from tts.reports.terminal import print_report
from tts.runs.compare import compare
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.events import (
    VERSION,
    ProblemSolved,
    Resources,
    SessionBegan,
    StepGenerated,
    StepScored,
)
from tts.runs.folder import CONFIG, SUMMARY, locked, read_problems
from tts.runs.log import RunLog, read_events
from tts.runs.measures import Measures
from tts.runs.resume import read_resume_point
from tts.runs.summary import read_summary
from tts.search import SampleSearch, SampleSearchConfig
from tts.session import Run, Session, run, solver
from tts.session.run import gpu_energy, recorded_resources
from tts.session.solver import UNREAD, Outbox

PROBLEMS = [("Compute 2 + 2.", "4"), "Compute 1 + 3.", Problem("third", "Compute 7 - 3.", "4", 2)]


def test_every_problem_is_yielded_once_named_by_its_place(session):
    results = {result.problem.id: result for result in session.solve_many(PROBLEMS, n=4)}
    assert set(results) == {"1", "2", "third"}
    assert results["2"].correct is None
    assert results["third"].problem == PROBLEMS[2]


def test_with_or_without_a_folder_the_trees_are_the_same(session, tmp_path):
    kept = {r.problem.id: r for r in session.solve_many(PROBLEMS, n=4, seed=3, out=tmp_path / "r")}
    free = {r.problem.id: r for r in session.solve_many(PROBLEMS, n=4, seed=3, in_flight=1)}
    one = session.solve(PROBLEMS[2], n=4, seed=3)
    assert {i: r.tree_digest for i, r in kept.items()} == {
        i: r.tree_digest for i, r in free.items()
    }
    assert one.tree_digest == free["third"].tree_digest


def test_every_time_in_the_log_is_one_of_the_logs_own_clock(session, tmp_path, monkeypatch):
    ticks = count()
    monkeypatch.setattr(RunLog, "clock", lambda log: next(ticks) / 1024)
    list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))
    times = [event.t for event in read_events(tmp_path / "run")]
    assert all((1024 * time).is_integer() for time in times)
    assert max(times) < next(ticks) / 1024


def test_a_folder_is_a_run_with_its_log_its_problems_and_its_summary(session, tmp_path):
    results = {r.problem.id: r for r in session.solve_many(PROBLEMS, n=4, out=tmp_path / "run")}
    folder = tmp_path / "run"
    run = Run.load(folder)
    questions = [problem.question for problem in read_problems(folder)]
    assert questions == ["Compute 2 + 2.", "Compute 1 + 3.", "Compute 7 - 3."]
    assert read_summary(folder).problems == 3
    assert {p.id: (p.answer, p.correct, p.tree_digest) for p in run.problems} == {
        i: (r.answer, r.correct, r.tree_digest) for i, r in results.items()
    }
    assert {p.id: p.completions for p in run.problems} == {
        i: r.completions for i, r in results.items()
    }


def test_usage_is_what_the_log_says(session, tmp_path):
    results = list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))
    for result in results:
        mine = [
            event
            for event in read_events(tmp_path / "run")
            if getattr(event, "problem", None) == result.problem.id
        ]
        written = [event for event in mine if isinstance(event, StepGenerated)]
        scored = [event for event in mine if isinstance(event, StepScored)]
        usage = result.usage
        assert usage.generator_calls == len(written)
        assert usage.generated_tokens == sum(event.tokens for event in written)
        assert usage.cached_scores == sum(event.cached for event in scored)
        assert usage.verifier_calls == sum(not event.cached for event in scored)


@settings(max_examples=15, deadline=None)
@given(answered=st.integers(0, 60))
def test_a_run_that_is_left_goes_on_to_the_same_results_with_nothing_asked_twice(
    tiny_deployment, words, tmp_path_factory, answered
):
    folder = tmp_path_factory.mktemp("run")
    engines = Failing(ScriptedGenerator(*words), 10**9, EndpointTimeout("gone"))

    def solved(name, **options):
        own = {"generator": engines, "verifier": ScriptedVerifier()}
        with Session.open(tiny_deployment, **own) as session:
            results = session.solve_many(PROBLEMS, n=4, out=folder / name, **options)
            return {result.problem.id: result for result in results}

    expected = solved("whole")
    engines.left = answered
    try:
        solved("left")
    except EndpointTimeout:
        engines.left = 10**9  # it is there again
        after = solved("left", resume=True)
    else:
        return
    for name, result in expected.items():
        assert after[name].tree_digest == result.tree_digest
        assert after[name].answers == result.answers
        assert after[name].completions == result.completions
        assert after[name].usage.generated_tokens >= result.usage.completion_tokens
    steps = (e for e in read_events(folder / "left") if isinstance(e, StepGenerated))
    asked = [(step.problem, step.node) for step in steps]
    assert len(asked) == len(set(asked))


def test_results_that_are_in_the_log_come_first(session, tmp_path):
    first = next(iter(session.solve_many(PROBLEMS, n=4, in_flight=1, out=tmp_path / "run")))
    solved = [e.problem for e in read_events(tmp_path / "run") if isinstance(e, ProblemSolved)]
    again = list(session.solve_many(PROBLEMS, n=4, in_flight=1, out=tmp_path / "run", resume=True))
    assert [r.problem.id for r in again[: len(solved)]] == solved
    assert again[0].tree is None
    assert (again[0].answers, again[0].completions) == (first.answers, first.completions)
    assert again[0].usage == first.usage
    assert {r.problem.id for r in again} == {"1", "2", "third"}


def test_leaving_the_loop_cancels_what_runs_and_waits_for_it(opened, words):
    generator = HangingFrom(ScriptedGenerator(*words), 40)
    with opened(generator=generator) as session:
        for _ in session.solve_many(PROBLEMS, n=4, in_flight=1, seed=1):
            break
        assert generator.hanging.in_flight == 0


def test_an_async_loop_that_is_left_ends_what_runs_before_the_session_ends(opened_async, words):
    generator = HangingFrom(ScriptedGenerator(*words), 40)

    async def run():
        async with opened_async(generator=generator) as session:
            async for result in session.solve_many(PROBLEMS, n=4, in_flight=1, seed=1):
                assert result.problem.id == "1"
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert generator.hanging.in_flight == 0


def test_the_first_problem_that_fails_ends_the_run_and_the_others(opened, words, tmp_path):
    failing = Failing(ScriptedGenerator(*words), 20, EndpointTimeout("no answer"))
    with opened(generator=failing) as session, pytest.raises(EndpointTimeout, match="no answer"):
        list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_log_that_cannot_be_written_ends_the_run(session, tmp_path, monkeypatch):
    write, wrote = RunLog.write, []

    def full(log, event):
        wrote.append(event)
        if len(wrote) > 20:
            raise RunError("The run folder cannot be written: No space left on device.")
        write(log, event)

    monkeypatch.setattr(RunLog, "write", full)
    with pytest.raises(RunError, match="No space left"):
        list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))


def test_a_run_is_continued_only_as_it_was_begun(session, opened, tmp_path):
    folder = tmp_path / "run"
    list(session.solve_many(PROBLEMS, n=4, out=folder))
    with pytest.raises(RunError) as begun:
        list(session.solve_many(PROBLEMS, n=4, out=folder))
    assert "resume=True" in begun.value.hint
    assert "--" not in begun.value.hint
    with pytest.raises(RunError, match="its seed was 0 and is now 1"):
        list(session.solve_many(PROBLEMS, n=4, seed=1, out=folder, resume=True))
    with pytest.raises(RunError, match="its problem_ids was"):
        list(session.solve_many(PROBLEMS[:2], n=4, out=folder, resume=True))
    own = {"verifier": lambda question, steps: 0.5}
    with opened(**own) as other, pytest.raises(RunError, match=r"its functions\.verifier was"):
        list(other.solve_many(PROBLEMS, n=4, out=folder, resume=True))


def test_the_command_refuses_to_continue_a_run_with_functions_of_a_program(session, tmp_path):
    folder = tmp_path / "run"
    list(session.solve_many(PROBLEMS, n=4, out=folder, answer_of=lambda text: text[:1]))
    with pytest.raises(RunError, match="answer_of") as caught:
        resume_bench(folder, None, Observer())
    assert "solve_many" in str(caught.value)


def test_solving_in_a_folder_is_a_run_of_one_problem(session, tmp_path):
    free = session.solve(PROBLEMS[0], n=4, seed=2)
    kept = session.solve(PROBLEMS[0], n=4, seed=2, out=tmp_path / "run")
    assert kept.tree_digest == free.tree_digest
    assert read_summary(tmp_path / "run").problems == 1


def test_a_run_of_a_functions_searches_is_reported(session, tmp_path, capsys):
    config = SampleSearchConfig(n=3, scored=False, max_tokens=64)

    def chains(problem, seed):
        return SampleSearch(config, seed)

    folder = tmp_path / "run"
    results = list(session.solve_many(PROBLEMS, strategy=chains, out=folder))
    summary = read_summary(folder)
    assert summary.accuracy == sum(r.correct is True for r in results) / 2
    print_report(compare([folder]))
    said = capsys.readouterr().out
    assert "chains" in said
    assert "KV pool" not in said
    steps = StepLog(folder, "generator", StepSession(session="", sampled=False))
    steps.write([EngineStep(t=float(missed), prefixes_missed=missed) for missed in (0, 3)])
    steps.close()
    print_report(compare([folder]))
    assert "its KV pool had dropped a prefix of 3 prompts" in capsys.readouterr().out
    (record,) = [p for p in Run.load(folder).problems if p.id == "third"]
    (result,) = [r for r in results if r.problem.id == "third"]
    assert (record.answer, record.correct) == (result.answer, result.correct)


def test_a_folder_that_somebody_works_in_is_refused(session, tmp_path):
    folder = tmp_path / "run"
    with locked(folder), pytest.raises(RunError, match="in use by process"):
        session.solve(PROBLEMS[0], n=4, out=folder)
    list(session.solve_many(PROBLEMS, n=4, out=folder))
    with locked(folder), pytest.raises(RunError, match="in use by process"):
        list(session.solve_many(PROBLEMS, n=4, out=folder, resume=True))
    assert len(list(session.solve_many(PROBLEMS, n=4, out=folder, resume=True))) == 3


def test_a_damaged_run_is_continued_when_it_is_repaired(session, tmp_path):
    folder = tmp_path / "run"
    whole = {r.problem.id: r.tree_digest for r in session.solve_many(PROBLEMS, n=4, out=folder)}
    log = folder / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:10], b"damage\n", *lines[11:]]))
    with pytest.raises(RunError, match=r"line 11 is not JSON.*\n.*--repair"):
        list(session.solve_many(PROBLEMS, n=4, out=folder, resume=True))
    again = session.solve_many(PROBLEMS, n=4, out=folder, resume=True, repair=True)
    assert {r.problem.id: r.tree_digest for r in again} == whole


LONG = "Compute " + " + ".join(["1"] * 400) + "."


@pytest.fixture(autouse=True)
def few_ahead(monkeypatch):
    monkeypatch.setattr(solver, "AHEAD", 3)


def test_an_endless_generator_streams_and_is_read_a_little_ahead(session):
    taken = []

    def endless():
        for number in itertools.count():
            assert threading.current_thread() is threading.main_thread()
            taken.append(number)
            yield f"Compute {number} + 1."

    results = session.solve_many(endless(), n=4, in_flight=2)
    solved = [next(results).problem for _ in range(12)]
    ahead = len(taken) - 12
    results.close()
    assert len({problem.id for problem in solved}) == 12
    assert all(problem.question == f"Compute {int(problem.id) - 1} + 1." for problem in solved)
    assert ahead < 12, "2 run, 3 wait, the others are results that were not read yet"
    before = len(taken)
    assert session.solve("Compute 1 + 1.", n=4).completions
    assert len(taken) == before, "nothing more is taken"


def test_the_same_trees_from_a_list_a_generator_and_an_asynchronous_one(opened_async):
    questions = [f"Compute {i} + 2." for i in range(8)]

    async def asynchronous():
        for question in questions:
            await asyncio.sleep(0)
            yield question

    async def run():
        digests = []
        async with opened_async() as session:
            for given in (questions, iter(questions), asynchronous()):
                results = [result async for result in session.solve_many(given, n=4)]
                digests.append({result.problem.id: result.tree_digest for result in results})
        return digests

    first, *others = asyncio.run(run())
    assert len(first) == 8
    assert others == [first, first]


def test_an_asynchronous_generator_is_no_run_in_a_folder(opened_async, tmp_path):
    async def asynchronous():
        yield "Compute 1 + 2."

    async def run():
        async with opened_async() as session:
            with pytest.raises(ConfigError):
                session.solve_many(asynchronous(), n=4, out=tmp_path / "run")

    asyncio.run(run())


def test_what_a_generator_raises_ends_the_run(session):
    def failing():
        yield "Compute 1 + 1."
        raise LookupError("no more of them")

    with pytest.raises(LookupError, match="no more"):
        list(session.solve_many(failing(), n=4))
    with pytest.raises(DatasetError, match="must be unique"):
        list(session.solve_many((Problem("same", "1 + 1") for _ in range(2)), n=4))
    assert session.solve("Compute 1 + 1.", n=4).completions


@pytest.mark.parametrize("made", [list, iter])
def test_an_overlong_question_fails_alone_when_asked_to(session, made):
    asked = ["Compute 1 + 2.", (LONG, "400"), "Compute 3 + 4.", LONG]
    all_of_them = "2 of 4 problems are too long: 2, 4. The first: " if made is list else ""
    with pytest.raises(DatasetError, match=f"{all_of_them}Problem 2 is .* tokens long"):
        list(session.solve_many(made(asked), n=4))
    whole = {r.problem.id: r for r in session.solve_many(made(asked), n=4, skip_overlong=True)}
    assert sorted(whole) == ["1", "2", "3", "4"]
    assert "tokens long" in whole["2"].error
    assert "error=" in repr(whole["2"])
    assert (whole["2"].answer, whole["2"].correct, whole["4"].correct) == (None, False, None)
    fitting = session.solve_many([Problem(id, asked[int(id) - 1]) for id in ("1", "3")], n=4)
    assert {r.problem.id: r.tree_digest for r in fitting} == {
        id: whole[id].tree_digest for id in ("1", "3")
    }
    assert all(r.error for r in session.solve_many(made([LONG]), n=4, skip_overlong=True))


def test_a_run_in_a_folder_goes_on_without_an_overlong_question(session, tmp_path):
    folder, asked = tmp_path / "run", ["Compute 1 + 2.", LONG]
    options = {"n": 4, "out": folder, "skip_overlong": True}
    first = list(session.solve_many(asked, **options))
    assert [result.error is None for result in first] == [False, True]
    again = list(session.solve_many(asked, resume=True, **options))
    assert [r.tree_digest for r in again] == [r.tree_digest for r in first]


async def has_room(box):
    waiting = asyncio.ensure_future(box.room())
    await asyncio.sleep(0)
    waiting.cancel()
    return waiting.done()


@given(st.lists(st.integers(-UNREAD, UNREAD), max_size=8))
def test_there_is_room_while_fewer_than_so_many_wait(moves):
    """A positive move puts so many, a negative one takes them."""

    async def run():
        box, put, taken = Outbox(), 0, []
        for move in moves:
            for _ in range(max(0, move)):
                box.put(put)
                put += 1
            for _ in range(min(put - len(taken), max(0, -move))):
                taken.append(await box.get())
            assert await has_room(box) == (put - len(taken) < UNREAD)
        box.close()
        while (result := await box.get()) is not None:
            taken.append(result)
        assert taken == list(range(put))

    asyncio.run(run())


def test_a_slow_program_holds_the_searches_up(opened_async, endpoints, monkeypatch):
    monkeypatch.setattr(solver, "UNREAD", 3)
    monkeypatch.setattr(solver, "AHEAD", 2)
    asked = endpoints["verifier"].calls.scored

    async def run():
        async with opened_async() as session:
            questions = [f"Compute {i}." for i in range(60)]
            results = session.solve_many(questions, n=4, beam_width=2)
            await anext(results)
            idle = 0
            while idle < 50 or not asked:  # until nothing more is begun
                idle = idle + 1 if session.in_flight == (0, 0) else 0
                await asyncio.sleep(0)
            before = len(asked)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(asked) == before
            return before, 1 + len([result async for result in results])

    before, solved = asyncio.run(run())
    assert solved == 60
    assert before < len(asked) / 2


class NVMLError(Exception):
    """As the real one, the base of all errors of NVML."""


class StandIn(SimpleNamespace):
    """NVML with counters that the test moves; None: a GPU that counts no energy."""

    NVMLError = NVMLError

    def __init__(self, counters, driver=True):
        super().__init__(counters=counters, driver=driver, open=0)

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.counters)

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"handle {index}"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        counted = self.counters[int(handle.removeprefix("handle "))]
        if counted is None:
            raise NVMLError("Not Supported")
        return counted


@pytest.fixture
def nvml(monkeypatch):
    stand_in = StandIn([5_000, None, 7_000])
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_each_gpus_energy_counts_from_the_beginning(nvml):
    with gpu_energy() as joules:
        assert joules() == {"0": 0.0, "2": 0.0}
        nvml.counters[:] = [6_500, None, 7_000]
        assert joules() == {"0": 1.5, "2": 0.0}
        nvml.counters[2] = None  # it has fallen off the bus
        assert joules() == {"0": 1.5}
    assert nvml.open == 0


@pytest.mark.parametrize("nvml_module", [StandIn([]), StandIn([1], driver=False), None])
def test_without_a_gpu_a_driver_or_the_package_there_is_no_energy(monkeypatch, nvml_module):
    monkeypatch.setitem(sys.modules, "pynvml", nvml_module)
    with gpu_energy() as joules:
        assert joules() == {}
    assert nvml_module is None or nvml_module.open == 0


async def recorded(log, work=lambda: None, turns=0):
    """What happens while a run's resources are recorded."""
    async with recorded_resources(log):
        work()
        for _ in range(turns):
            await asyncio.sleep(0)


def test_the_log_has_processor_time_and_energy_at_the_end_of_a_session(nvml, tmp_path):
    def work():
        nvml.counters[0] += 2_000
        sum(range(200_000))

    with RunLog(tmp_path, (64, 4096)) as log:
        asyncio.run(recorded(log, work))
    session, used = read_events(tmp_path)
    assert session.limits == (64, 4096)
    assert used.cpu_s > 0
    assert used.energy_j == {"0": 2.0, "2": 0.0}


def test_a_session_that_goes_on_is_written_down_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "INTERVAL_S", 0.0)
    with RunLog(tmp_path) as log:
        asyncio.run(recorded(log, turns=10))
    used = [event.cpu_s for event in read_events(tmp_path) if isinstance(event, Resources)]
    assert len(used) > 2
    assert used == sorted(used)


def test_a_full_disk_is_not_reported_from_here(tmp_path, monkeypatch):
    def full(log, event):
        raise RunError("full")

    with RunLog(tmp_path) as log:
        asyncio.run(recorded(log, lambda: monkeypatch.setattr(RunLog, "write", full)))


def test_what_sessions_have_used_adds_up_and_the_last_word_of_each_counts():
    log = [
        SessionBegan(t=0.0, time="", version=VERSION, limits=(8, 100)),
        Resources(t=1.0, cpu_s=0.5),
        Resources(t=4.0, cpu_s=1.0, energy_j={"0": 10.0, "1": 5.0}),
        SessionBegan(t=0.0, time="", version=VERSION),  # killed before it said anything
        SessionBegan(t=0.0, time="", version=VERSION, limits=(4, 50)),
        Resources(t=2.0, cpu_s=2.0, energy_j={"0": 1.0}),
    ]
    measures = Measures.of(log)
    assert measures.cpu_s == 3.0
    assert measures.cpu_share == 3.0 / 6.0
    assert measures.energy_j == 16.0
    assert measures.run.limits == (4, 50)
    silent = Measures.of([SessionBegan(t=0.0, time="", version=VERSION)])
    assert (silent.cpu_s, silent.cpu_share) == (None, None)
    assert (silent.energy_j, silent.run.limits) == (None, None)


def test_a_run_has_its_limits_and_its_processor_time(session, tmp_path):
    list(session.solve_many([("Compute 2 + 2.", "4")], n=4, out=tmp_path / "run"))
    measures = Measures.of(read_events(tmp_path / "run"))
    assert measures.cpu_s > 0
    assert 0 < measures.batch_utilization("generator") < 1
    assert 0 < measures.batch_utilization("verifier") < 1


class LosingDisk:
    """What a disk holds that keeps a file's bytes and a folder's names when they are synced only.

    It watches fsync. `cuts` are copies of the folder as the disk has it after each.
    """

    def __init__(self, folder, cuts):
        self.folder, self.cuts, self.count = folder, cuts, 0
        self.bytes, self.names = {}, {}
        self.fsync = os.fsync

    def sync(self, descriptor):
        self.fsync(descriptor)
        about = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[path] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        else:
            self.bytes[about.st_ino] = path.read_bytes()
        self.cut(self.cuts / str(self.count))
        self.count += 1

    def cut(self, into):
        """The run folder as it is after a power cut, in the folder `into`."""
        into.mkdir(parents=True)
        known = self.names.get(self.folder.parent, {})
        if self.folder.name not in known:
            return
        for name, inode in self.names.get(self.folder, {}).items():
            (into / name).write_bytes(self.bytes.get(inode, b""))


@pytest.fixture
def disk(tmp_path, monkeypatch):
    disk = LosingDisk(tmp_path / "runs" / "mine", tmp_path / "cuts")
    monkeypatch.setattr(os, "fsync", disk.sync)
    return disk


def test_a_result_that_is_handed_over_is_on_disk(session, disk, tmp_path, monkeypatch):
    put, handed = Outbox.put, []

    def cut_and_put(outbox, result):  # the run may be far ahead of whoever takes its results
        handed.append(result.problem.id)
        disk.cut(tmp_path / f"handed-{len(handed)}")
        put(outbox, result)

    monkeypatch.setattr(Outbox, "put", cut_and_put)
    assert len(list(session.solve_many(PROBLEMS, n=4, out=disk.folder))) == len(handed)
    for taken in range(1, len(handed) + 1):
        point = read_resume_point(tmp_path / f"handed-{taken}", "weighted")
        assert set(handed[:taken]) <= point.solved.keys()


def test_a_run_goes_on_to_the_same_trees_from_every_power_cut(session, disk, tmp_path, monkeypatch):
    whole = {
        r.problem.id: r.tree_digest for r in session.solve_many(PROBLEMS, n=4, out=disk.folder)
    }
    monkeypatch.setattr(os, "fsync", disk.fsync)
    ends = Counter()
    assert disk.count >= len(PROBLEMS)
    for number in range(disk.count):
        folder = disk.cuts / str(number)
        began = (folder / CONFIG).exists()
        ends["finished" if (folder / SUMMARY).exists() else "begun" if began else "nothing"] += 1
        if began:
            assert len(read_problems(folder)) == len(PROBLEMS)
        again = session.solve_many(PROBLEMS, n=4, out=folder, resume=began)
        assert {r.problem.id: r.tree_digest for r in again} == whole
    assert ends.keys() == {"nothing", "begun", "finished"}
