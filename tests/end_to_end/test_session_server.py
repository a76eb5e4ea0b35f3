"""The Python API on the real server: the ten-line program, Ctrl-C, a server that dies, resume."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.end_to_end.commands import events, summary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md"

pytestmark = pytest.mark.server

LONG = """
from tts.session import Session

with Session.open("demo", say=lambda line: print(line, flush=True)) as session:
    said = False

    def on_step(step):
        global said
        if not said:
            said = True
            print("searching", flush=True)

    problems = [f"Compute {i} + {i + 1}." for i in range(300)]
    for result in session.solve_many(problems, n=16, out="run", on_step=on_step):
        pass
"""
"""Long enough to be stopped in the middle."""
SHORT = """
from tts.session import Session

problems = [(f"Compute {i} + {i + 1}.", str(2 * i + 1)) for i in range(3)]
said = "Compute 2 + 2.", "The answer is 4.", "Compute 3 + 4."
roles = "user", "assistant", "user"
conversation = [{"role": role, "content": text} for role, text in zip(roles, said)]
with Session.open("demo") as session:
    for result in session.solve_many([*problems, (conversation, "7")], n=4, seed=1, out="run"):
        print(result.problem.id, result.answer, result.correct, flush=True)
"""


def start(tts, program, folder):
    """A Python program in a process of its own, in `folder`."""
    file = folder / "program.py"
    file.write_text(program)
    return subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "TTS_HOME": str(tts.home)},
        start_new_session=True,
    )


def wait_for(process, word):
    for line in process.stdout:
        if word in line:
            return
    pytest.fail(process.stderr.read())


def test_the_first_program_of_the_page_runs_and_its_run_goes_on_in_it_alone(served, tmp_path):
    program = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S).group(1)
    process = start(served, program, tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "Usage(generator_calls=" in out
    assert re.search(r"^2 42 True$", out, re.M)
    run = tmp_path / "runs" / "mine"
    assert summary(run)["problems"] == 2
    code, _, err = served.run("bench", "--resume", run)
    assert code == 1
    assert "verifier __main__.reward" in err
    assert "resume=True" in err


@pytest.mark.parametrize("moment", ["Starting", "searching"])
def test_ctrl_c_leaves_no_process_and_no_half_line(tts, tmp_path, moment):
    process = start(tts, LONG, tmp_path)
    wait_for(process, moment)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130), err
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "never retrieved" not in err
    assert "was destroyed" not in err
    assert tts.leftovers() == []
    if moment == "searching":
        assert (tmp_path / "run" / "events.jsonl").read_bytes().endswith(b"\n")
        assert not (tmp_path / "run" / "summary.json").exists()


def test_a_programs_run_is_reported_and_continued_by_the_command(served, tmp_path):
    process = start(served, SHORT, tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert len(out.splitlines()) == 4
    folder = tmp_path / "run"
    whole = summary(folder)
    out, _ = served.done("report", folder)
    assert "beam-search" in out
    (folder / "summary.json").unlink()
    log = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(log[: len(log) // 2]))
    served.done("bench", "--resume", folder)
    assert summary(folder)["tree_digest"] == whole["tree_digest"]
    assert summary(folder)["accuracy"] == whole["accuracy"]
    asked = [(e["problem"], *e["node"]) for e in events(folder) if e["event"] == "generated"]
    assert len(asked) == len(set(asked))


AWAITED = """
import asyncio

from tts.session import Session


async def main():
    async with Session.open_async("demo") as session:
        solving = asyncio.ensure_future(session.solve("Compute 12 + 30.", n=16))
        short = [session.solve(f"Compute {i} + 1.", n=4, seed=i) for i in range(3)]
        results = await asyncio.gather(*short)
        solving.cancel()
        ranked = await session.score("Compute 1 + 1.", ["1 + 1 = 2"])
        print(len(results), [done.score for done in ranked.completions])
    left = asyncio.all_tasks() - {asyncio.current_task()}
    print("tasks left:", len(left), *left)


for _ in range(2):  # each in an event loop of its own
    asyncio.run(main())
"""


@pytest.mark.parametrize("home", [pytest.param("tts", marks=pytest.mark.slow), "served"])
def test_an_awaited_session_leaves_no_task(request, home, tmp_path):
    """On servers that it starts itself, and on one that runs."""
    tts = request.getfixturevalue(home)
    process = start(tts, AWAITED, tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert err == ""
    assert out.count("tasks left: 0") == 2, out
    assert tts.leftovers() == []
