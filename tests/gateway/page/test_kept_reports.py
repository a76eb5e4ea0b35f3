"""The report that a search leaves: its tree as it was, on a page, for as long as there is room."""

import asyncio
import json
import os
import re

import pytest

from tts.build import paths
from tts.build.tokenizer import Tokenizer
from tts.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tts.gateway.page import kept_reports
from tts.gateway.page.kept_reports import tree_of
from tts.gateway.running_searches import RunningSearch
from tts.reports.page.trees import tree_digest
from tts.session import AsyncSession

WORDS = ("1", "22", " + ", r"\boxed{4}", r"\boxed{5}")
HOSTILE = "What is </script><script>alert(1)</script> 1 + 3?"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))


def searched(deployment, tokenizer_folder, strategy="beam-search", question=HOSTILE):
    """A search that has ended, and its result."""
    tokenizer = Tokenizer(tokenizer_folder)
    words = [tokenizer.encode(word) for word in WORDS], tokenizer.encode("\n\n")

    async def go():
        endpoints = {"generator": ScriptedGenerator(*words), "verifier": ScriptedVerifier()}
        async with AsyncSession(deployment, **endpoints) as session:
            search = RunningSearch(
                lambda on_step, on_server: session.solve(
                    question, strategy=strategy, n=8, on_step=on_step
                )
            )
            return search, await search.result()

    return asyncio.run(go())


@pytest.mark.parametrize("strategy", ["beam-search", "best-of-n", "dvts", "mcts"])
def test_a_searchs_tree_has_every_thought_with_its_fate(
    tiny_deployment, tokenizer_folder, strategy
):
    search, result = searched(tiny_deployment, tokenizer_folder, strategy)
    tree = tree_of(search, result)
    assert tree_digest(tree.thoughts) == result.tree_digest
    answers = [*(group.answer for group in tree.groups), None]
    assert [answers[done.group] for done in tree.completions] == [
        done.answer for done in result.completions
    ]
    for thought in tree.thoughts:
        assert search.began <= thought.done <= search.ended
        assert thought.scored is None or thought.done <= thought.scored <= search.ended


def test_a_report_is_one_file_that_nothing_in_it_can_break(tiny_deployment, tokenizer_folder):
    search, result = searched(tiny_deployment, tokenizer_folder)
    path = asyncio.run(kept_reports.keep(search, result, {"strategy": "beam-search", "n": 8}))
    name = re.fullmatch(r"/reports/([0-9a-f]{32})\.html", path)[1]
    folder = kept_reports.reports_dir()
    page = (folder / f"{name}.html").read_text()
    assert "<script>alert(1)" not in page
    assert "report-files" not in page
    tree = json.loads((folder / f"{name}.json").read_text())
    assert tree["entry"]["question"] == HOSTILE
    assert len(tree["tree"]["thoughts"]) == len(result.tree)
    assert folder.stat().st_mode & 0o77 == 0
    assert paths.gateway_dir().stat().st_mode & 0o77 == 0


def test_the_oldest_reports_make_room(tiny_deployment, tokenizer_folder, monkeypatch):
    monkeypatch.setattr(kept_reports, "KEPT", 2)
    search, result = searched(tiny_deployment, tokenizer_folder)
    kept = []
    for number in range(4):
        kept.append(asyncio.run(kept_reports.keep(search, result, {})).rpartition("/")[2])
        for file in kept_reports.reports_dir().glob(f"{kept[-1].removesuffix('html')}*"):
            os.utime(file, (number, number))
    left = {file.name for file in kept_reports.reports_dir().iterdir()}
    assert left == {name for page in kept[2:] for name in (page, page.replace("html", "json"))}
