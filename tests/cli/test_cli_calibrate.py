"""`tts runs calibrate` in a process of its own, on runs over scripted engines."""

import asyncio
import json

import pytest
from tests.cli.test_cli import tts

from tts.build.paths import deployments_dir
from tts.build.tokenizer import Tokenizer
from tts.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tts.session import AsyncSession

QUESTIONS = [(f"Compute {number} + 1.", str(number + 1)) for number in range(4)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of finished runs by strategy."""
    folder = tmp_path_factory.mktemp("runs")
    encode = Tokenizer(deployments_dir().parent / "checkpoints" / "demo-generator").encode
    words = [encode(word) for word in ("1", "12", r"\boxed{4}")]
    engines = {
        "generator": ScriptedGenerator(words, encode("\n\n")),
        "verifier": ScriptedVerifier(),
    }

    async def solve(strategy):
        async with AsyncSession("demo", **engines) as session:
            asked = session.solve_many(QUESTIONS, strategy=strategy, n=4, out=folder / strategy)
            assert len([result async for result in asked]) == len(QUESTIONS)

    for strategy in ("weighted-best-of-n", "dvts"):
        asyncio.run(solve(strategy))
    return folder


def test_runs_give_a_policy_for_each_budget_that_auto_can_read(runs, tmp_path):
    policy = tmp_path / "policy.json"
    folders = (runs / "weighted-best-of-n", runs / "dvts")
    budgets = ("--budget", 4, "--budget", 1)
    code, out, err = tts("runs", "calibrate", *folders, "--to", policy, *budgets, home=tmp_path)
    assert code == 0, err
    assert f"--set policy={policy}" in "".join((out + err).split("\n"))
    made = json.loads(policy.read_text())
    assert [budget["n"] for budget in made["budgets"]] == [1, 4]
    assert made["made_from"] == "weighted-best-of-n n=4, dvts n=4, 4 problems"


def test_what_no_policy_can_be_made_from_is_said(runs, tmp_path):
    policy = tmp_path / "policy.json"
    for arguments, said in (
        ((runs / "dvts", "--to", policy), "0 of the runs are of weighted-best-of-n"),
        ((tmp_path, "--to", policy), "holds no run"),
        ((runs / "weighted-best-of-n", "--out", tmp_path / "no" / "x"), "cannot be written"),
    ):
        code, _, err = tts("runs", "calibrate", *arguments, home=tmp_path)
        assert code in (1, 2)
        assert said in " ".join(err.split())
    assert not policy.exists()
