"""Engines without a server: the answers, the cancelled, the killed, and what is left of them.

That the trees are those of Triton is in test_embedded_server.py.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.end_to_end.commands import summary, wait_for_events, written_demo
from tests.end_to_end.gateways import client, gateway
from tests.forks import said_in_a_fork
from tests.gateway.in_process import CHAT, KEY, Kept, exchanged, key_ring, service_of

from tts.base import paths
from tts.base.errors import (
    BuildError,
    ConfigError,
    EndpointTimeout,
    EndpointUnavailable,
    EngineError,
    RequestRefused,
    ServerError,
)
from tts.endpoints.base import GenerateCall
from tts.endpoints.embedded import EmbeddedEngine
from tts.endpoints.retry import MOST_DEATHS
from tts.engines import engine_client, wire
from tts.engines.statistics import Statistics
from tts.gateway.app import App
from tts.runs.engine_steps import steps_file
from tts.serving.server.lookup import watch
from tts.session import Session

PROBLEMS = [(f"Compute {i} + {i + 1}.", str(2 * i + 1)) for i in range(3)]


pytestmark = pytest.mark.usefixtures("tts")


def engines_of(process):
    """Its own that run, by the folder of their engine; not those below a Triton server.

    Nor those of `in_session`, whose home is another.
    """
    found = {}
    for child in process.children():
        with contextlib.suppress(psutil.Error):  # it has ended by now
            command = child.cmdline()
            if len(command) < 3:  # as of one that has ended and was not waited for
                continue
            *_, code, _fd, folder = command
            if "tts.engines.engine_process" in code and folder.startswith(os.environ["TTS_HOME"]):
                found[Path(folder).name] = child
    return found


def trees(results):
    return {r.problem.id: (r.answer, r.completions) for r in results}


def test_a_session_has_two_processes_nothing_else_and_refuses_a_fork(tts):
    before = set(psutil.Process().children(recursive=True))
    with Session.open("demo", server="embedded") as session:
        first = trees(session.solve_many(PROBLEMS, n=4, seed=1))
        started = set(psutil.Process().children(recursive=True)) - before
        engines = engines_of(psutil.Process())
        assert set(engines) == {"generator", "verifier"}
        assert not [p for p in started if "triton" in p.name()]
        said = said_in_a_fork(lambda: session.solve("Compute 1 + 2.", n=4))
        assert "ForkError" in said
        assert trees(session.solve_many(PROBLEMS, n=4, seed=1)) == first, "as if none had forked"
        writings = session.generate("Compute 3 + 4.", n=3, max_tokens=20)
        assert len(writings) == 3
        good, bad = (
            session.score("Compute 3 + 4.", [f"The final answer is: $\\boxed{{{n}}}$."])
            for n in (7, 9)
        )
        assert 0 <= bad.completions[0].score <= good.completions[0].score <= 1
    assert not any(p.is_running() for p in engines.values())
    assert tts.leftovers() == []


def test_an_engine_that_is_killed_is_opened_again_and_the_trees_are_the_same(tts):
    with Session.open("demo", server="embedded") as session:
        undisturbed = trees(session.solve_many(PROBLEMS, n=8, seed=2))
        for part in ("generator", "verifier"):
            killed = []

            def on_step(step, part=part, killed=killed):
                if not killed:
                    engine = engines_of(psutil.Process())[part]
                    killed.append(engine.pid)
                    engine.kill()

            again = trees(session.solve_many(PROBLEMS, n=8, seed=2, on_step=on_step))
            assert engines_of(psutil.Process())[part].pid != killed[0]
            assert again == undisturbed


def test_an_engine_that_dies_each_time_ends_the_search_by_a_sentence(tts):
    async def search():
        async with Session.open_async("demo", server="embedded") as session:
            solving = asyncio.ensure_future(session.solve("Compute 1 + 2.", n=64))
            while not solving.done():
                if engine := engines_of(psutil.Process()).get("generator"):
                    engine.kill()
                await asyncio.sleep(0.02)
            return await solving

    with pytest.raises(
        EndpointUnavailable, match=f"generator has died {MOST_DEATHS} times"
    ) as died:
        asyncio.run(search())
    assert "killed by SIGKILL" in died.value.message
    assert engines_of(psutil.Process()) == {}


def test_an_engine_that_stands_still_is_a_timeout_and_one_that_cannot_start_is_given_up(
    tts, monkeypatch
):
    async def ask():
        async with Session.open_async("demo", server="embedded") as session:
            generator, _ = session.endpoints
            session.replicas.pairs[0].connection.limit_patience(0.0)
            call = GenerateCall(np.array([5], np.int32), 4, 0, 0.0, 1.0, False)
            engine = engines_of(psutil.Process())["generator"]
            with monkeypatch.context() as patch:
                patch.setattr(
                    session.replicas.pairs[0].connection._engines["generator"]._heartbeat,
                    "limit_s",
                    0.2,
                )
                engine.suspend()
                with pytest.raises(EndpointTimeout, match="has answered nothing for"):
                    await generator.generate(call)
                engine.resume()
            assert await generator.generate(call)

            def no_more(*arguments, **options):
                raise OSError(24, "Too many open files")

            monkeypatch.setattr(engine_client.subprocess, "Popen", no_more)
            engine.kill()
            with pytest.raises(ServerError, match="cannot be opened again"):
                await watch(session.replicas.pairs[0].check, 0.01)
            for _ in range(2):  # and it stays so
                with pytest.raises(EndpointUnavailable) as failed:
                    await generator.generate(call)
                assert "died" in failed.value.message
            assert "cannot be opened again: [Errno 24] Too many" in failed.value.message

    asyncio.run(ask())


@pytest.fixture(scope="module")
def in_session(new_home):
    """Runs a coroutine function of an open session."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("TTS_HOME", str(new_home()))
        opening = Session.open_async("demo", server="embedded")
        session = runner.run(opening.__aenter__())
        yield lambda ask: runner.run(ask(session))
        runner.run(opening.__aexit__(None, None, None))


def test_two_runs_of_one_session_both_have_their_engines_steps(in_session, tmp_path):
    async def solve(session, name):
        await session.solve("Compute 1 + 2.", n=16, seed=1, out=tmp_path / name)

    async def both(session):
        await asyncio.gather(solve(session, "one"), solve(session, "two"))
        await solve(session, "three")

    in_session(both)
    for name in ("one", "two", "three"):
        assert len(steps_file(tmp_path / name, "generator").read_text().splitlines()) > 5, name


def test_what_an_engine_cannot_do_is_refused_before_it_gets_there(in_session):
    async def ask(session):
        generator, _ = session.endpoints
        long = session.deployment.generator.max_seq_len
        for ids, message in (
            ([5] * long, "longest admissible prompt"),
            ([], "needs at least one token"),
            ([10**9], "the vocabulary is 0"),
        ):
            call = GenerateCall(np.array(ids, np.int32), 4, 0, 0.0, 1.0, False)
            with pytest.raises(RequestRefused, match=message):
                await generator.generate(call)
        guide = wire.Guide(wire.EBNF, "root")
        guided = GenerateCall(np.array([5], np.int32), 4, 0, 0.0, 1.0, False, guide=guide)
        with pytest.raises(RequestRefused, match="guided_decoding"):
            await generator.generate(guided)

    in_session(ask)


def test_a_stream_gives_what_the_whole_answer_holds_and_ends_when_it_is_closed(in_session):
    async def ask(session):
        generator, _ = session.endpoints
        ids = session.models.generator.encode("Compute 3 + 4.")
        call = GenerateCall(
            np.array(ids, np.int32), 40, 7, 0.8, 1.0, False, ignore_end=True, log_probs=True
        )
        whole = await generator.generate(call)
        pieces = [new async for new in generator.stream(call)]
        assert [token for new in pieces for token in new.ids] == whole
        assert len(pieces) > 5
        assert pieces[-1].final
        assert all(len(new.ids) == len(new.log_probs) for new in pieces)
        assert all(p <= 0 for new in pieces for p in new.log_probs)
        stream = generator.stream(call)
        await anext(stream)
        await stream.aclose()
        # an engine that still held the request would refuse this
        for _ in range(50):
            if await session.reset_prefix_caches():
                break
        else:
            pytest.fail("the closed stream still runs")

    in_session(ask)


def test_a_run_records_every_step_of_its_engines_and_is_resumed_after_a_kill(tts, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    options = "demo", "--limit", 2, "--n", 4, "--server", "embedded", "--out"
    tts.done("bench", *options, whole)
    steps = steps_file(whole, "generator").read_text().splitlines()
    assert len(steps) > 30  # each generates a token or more for each of the samples in it
    assert json.loads((whole / "run.json").read_text())["server"] == "embedded"
    process = tts.start("bench", *options, folder)
    wait_for_events(process, folder, "generated", 8)
    children = list(engines_of(psutil.Process(process.pid)).values())
    assert len(children) == 2
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    tts.done("bench", "--resume", folder)
    assert summary(folder)["tree_digest"] == summary(whole)["tree_digest"]
    assert tts.leftovers() == []


def test_a_resumed_solve_ends_with_the_answer_its_chain_and_a_warning(tts, tmp_path):
    """The demo pair has this one wrong, and its verifier notices."""
    question = "Start with 40. Subtract 38. Add 16. What is the result?"
    options = "--n", 4, "--server", "embedded", "--out", tmp_path / "run"
    whole, err = tts.done("solve", "demo", question, *options)
    assert f"tts report --open {tmp_path / 'run'}" in err
    *_, chain, _rules, doubt, last = whole.splitlines()
    assert doubt.startswith("The verifier's score is only 0.0")
    answer = last.removeprefix("answer: ")
    assert f"boxed{{{answer}}}" in chain
    log = tmp_path / "run" / "events.jsonl"
    (tmp_path / "run" / "summary.json").unlink()
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: len(lines) // 2]))
    for _ in ("cut", "finished"):
        assert tts.done("bench", "--resume", tmp_path / "run")[0] == whole


def test_ctrl_c_ends_the_engines_and_keeps_what_was_solved(tts, tmp_path):
    folder = tmp_path / "run"
    process = tts.start("bench", "demo", "--server", "embedded", "--out", folder)
    wait_for_events(process, folder, "generated", 40)
    engines = engines_of(psutil.Process(process.pid)).values()
    sessions = {os.getsid(engine.pid) for engine in engines}
    assert sessions == {process.pid}, "Linux divides processor time among sessions"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"tts bench --resume {folder}" in err
    assert tts.leftovers() == []


def test_a_run_that_ignores_ctrl_c_is_stopped_in_order_by_sigterm(tts, tmp_path):
    """Such as one under nohup, or in the background of a script."""
    folder = tmp_path / "run"
    process = tts.start(
        *("bench", "demo", "--server", "embedded", "--out", folder),
        ignored=[signal.SIGINT],
    )
    wait_for_events(process, folder, "generated", 40)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "Stopped by SIGTERM." in err
    assert f"tts bench --resume {folder}" in err
    assert tts.leftovers() == []


@pytest.mark.slow
def test_a_dataset_without_answers_is_solved_and_its_accuracy_is_left_open(tts, tmp_path):
    file, folder = tmp_path / "asked.jsonl", tmp_path / "run"
    file.write_text('{"question": "Compute 1 + 2."}\n{"question": "Compute 3 + 4."}\n')
    options = ("--dataset", file, "--set", "n=4", "--server", "embedded", "--out", folder)
    out, err = tts.done("bench", "demo", *options)
    assert "no answers, so no accuracy" in err
    assert summary(folder)["accuracy"] is None
    assert re.search(r"beam-search\b.* - ", out), out
    tts.done("report", folder)
    tts.done("bench", "--resume", folder)


def test_the_gateway_serves_them_and_survives_their_death(tts):
    with gateway(tts, "--server", "embedded") as address:
        process = psutil.Process(tts.started[-1].pid)
        with client(address) as asked:
            model = asked.models.list().data[0].id
            for _ in range(2):
                answer = asked.chat.completions.create(
                    model=model,
                    messages=[{"role": "user", "content": "Compute 3 + 4."}],
                    max_tokens=40,
                )
                assert answer.choices[0].message.content
                for engine in engines_of(process).values():
                    engine.kill()
    assert tts.leftovers() == []


def test_what_cannot_be_embedded_says_so(tts, tmp_path):
    code, _, err = tts.run(
        "serve", written_demo(tmp_path / "own.yaml", server={"kind": "embedded"})
    )
    assert code == 2
    assert "server.kind: embedded" in err
    with pytest.raises(ConfigError, match="whose engines run under Triton"):
        Session.open("demo-gpu", server="embedded")
    with pytest.raises(ConfigError, match="server is 'trtion'"):
        Session.open("demo", server="trtion")


def test_an_engine_that_cannot_be_opened_says_why(tts, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(engine_client, "_CODE", "import sys; sys.exit('no such device')")
        with pytest.raises(EngineError, match=r"/generator|/verifier") as failed:
            Session.open("demo", server="embedded")
    assert "ended with exit status 1" in failed.value.message
    assert failed.value.hint == "no such device"
    xml = next(paths.engine_dir("demo", "verifier").glob("*.xml"))
    xml.write_text(xml.read_text()[:1000])
    with pytest.raises(BuildError, match="has changed since it was built"):
        Session.open("demo", server="embedded")
    assert engines_of(psutil.Process()) == {}


def test_a_search_that_is_left_is_charged_all_that_the_engine_has_written(tts, monkeypatch):
    take, latest = EmbeddedEngine._take_statistics, {"generator": Statistics()}
    body = {"model": "demo:majority-vote", "tts": {"n": 256}}
    body["messages"] = [{"role": "user", "content": "Compute 12 + 30 * 7 - 11."}]

    def noted(engine, statistics):
        latest[engine.model] = statistics
        take(engine, statistics)

    monkeypatch.setattr(EmbeddedEngine, "_take_statistics", noted)

    async def charged():
        kept, came = Kept(), [{"type": "http.request", "body": json.dumps(body).encode()}]

        async def receive():
            if came:
                return came.pop()
            while latest["generator"].active < 32:
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async with Session.open_async("demo", server="embedded") as session:
            app = App(service_of(session, recorder=kept, keyring=key_ring()))
            await exchanged(app, CHAT, receive, KEY)
            (record,) = kept.ended
            assert record.outcome == "cancelled"
            while latest["generator"].active:
                await asyncio.sleep(0.01)
            # the engine has written a token for the prompt that was sent ahead
            assert 0 <= latest["generator"].output_tokens_total - record.search_tokens <= 1
            assert record.search_tokens

    asyncio.run(asyncio.wait_for(charged(), 120))
