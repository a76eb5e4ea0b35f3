"""Known datasets: downloaded once from where they are, kept only if they are what they must be."""

import functools
import hashlib
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler

import pytest

from tts.base.errors import DatasetError
from tts.datasets import load
from tts.datasets.hub import KNOWN, cached_file
from tts.datasets.load import load_dataset, load_problems

LINES = (
    b'{"problem": "1?", "answer": "01", "id": "a"}\n{"problem": "2?", "answer": "2", "id": null}\n'
)


@pytest.fixture
def served(tmp_path, home, monkeypatch, serving):
    """A dataset `aime-2024` on a server of our own; its folder, and what was asked for."""
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, form, *arguments):
            asked.append(self.path)

    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "set.jsonl").write_bytes(LINES)
    with serving(functools.partial(Handler, directory=folder)) as url:
        there = {"url": f"{url}/set.jsonl", "sha256": hashlib.sha256(LINES).hexdigest()}
        known = replace(KNOWN["aime-2024"], **there, size=len(LINES))
        monkeypatch.setitem(load.KNOWN, "aime-2024", known)
        yield folder, asked


def test_a_known_dataset_is_downloaded_once_and_read_as_it_is_known_to_be(served):
    said = []
    first = load_dataset("aime-2024", say=said.append)
    assert [problem.answer for problem in first.problems] == ["1", "2"]
    assert [problem.id for problem in first.problems] == ["a", "aime-2024:2"]
    assert first.source == "aime-2024: 2 of 2 problems; problem, answer, id"
    assert load_dataset("aime-2024", say=said.append) == first
    assert said == [f"Downloading aime-2024 (0.0 MB) from {load.KNOWN['aime-2024'].url}"]
    assert len(served[1]) == 1


@pytest.mark.parametrize("content", [LINES[:-1], LINES + b"\n", LINES.replace(b"01", b"02")])
def test_what_is_not_the_dataset_is_refused_and_not_kept(served, home, content):
    (served[0] / "set.jsonl").write_bytes(content)
    with pytest.raises(DatasetError, match="is not the dataset: ") as caught:
        load_problems("aime-2024")
    assert str(home / "datasets" / "aime-2024.jsonl") in caught.value.hint
    assert not (home / "datasets").exists()
    (served[0] / "set.jsonl").write_bytes(LINES)
    load_problems("aime-2024")
    cached_file("aime-2024").write_bytes(content)
    with pytest.raises(DatasetError, match=r"aime-2024\.jsonl is not the dataset") as caught:
        load_problems("aime-2024")
    assert "Remove it" in caught.value.hint


def test_without_a_network_it_is_said_where_to_put_the_file(served, home, monkeypatch):
    nowhere = replace(load.KNOWN["aime-2024"], url="http://127.0.0.1:9/set.jsonl")
    monkeypatch.setitem(load.KNOWN, "aime-2024", nowhere)
    with pytest.raises(DatasetError, match=r":9/set\.jsonl cannot be downloaded") as caught:
        load_problems("aime-2024")
    file = home / "datasets" / "aime-2024.jsonl"
    assert caught.value.hint == f"Download it elsewhere, and put it here: {file}"
    file.parent.mkdir(parents=True)
    file.write_bytes(LINES)
    assert len(load_problems("aime-2024")) == 2


def test_gsm8k_is_the_published_file(home, published):
    cached_file("gsm8k").parent.mkdir(parents=True)
    cached_file("gsm8k").write_bytes(published("gsm8k_test.jsonl").read_bytes())
    problems = load_problems("gsm8k")
    assert len(problems) == KNOWN["gsm8k"].problems
    assert {problem.answer.lstrip("-").isdigit() for problem in problems} == {True}
    assert problems[0].id == "gsm8k:1"


def test_every_entry_names_a_commit_and_a_whole_checksum():
    for name, known in KNOWN.items():
        assert len(bytes.fromhex(known.sha256)) == 32, name
        assert any(len(part) == 40 for part in known.url.split("/")), name
        assert {"problem", "answer"} <= known.columns.keys(), name
        assert known.size > 100 * known.problems, name
