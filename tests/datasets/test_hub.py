"""Datasets that are downloaded: of the hub, from a server of our own that answers as it; pinned."""

import functools
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from urllib.parse import unquote, urlsplit

import pytest

from tts.base.errors import DatasetError
from tts.datasets import load
from tts.datasets.hub import KNOWN, HubName, cached_file, hub_files
from tts.datasets.load import load_dataset, load_problems
from tts.datasets.options import DatasetOptions

pytest.importorskip("pyarrow")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def parquet(rows):
    from pyarrow import Table
    from pyarrow import parquet as files

    buffer = io.BytesIO()
    files.write_table(Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def sums(*numbers):
    return parquet([{"question": f"{n} + {n}?", "answer": f"so #### {2 * n}"} for n in numbers])


class Hub:
    """What the hub keeps, by repository, and what it was asked for."""

    def __init__(self):
        self.repositories = {}
        self.asked = []

    def answer(self, path):
        """Status, headers and body, after the hub's documented API."""
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/revision/(.+)", path):
            repository, branch = found[1], unquote(found[2])
            if repository == "some/gated":
                return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
            if repository not in self.repositories:
                return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
            files = self.repositories[repository]
            if branch != "refs/convert/parquet" or files is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            listed = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            info = {"_id": "1", "id": repository, "sha": COMMIT, "siblings": listed, "tags": []}
            info |= {"private": False, "disabled": False, "gated": False, "downloads": 0}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        if found := re.fullmatch(rf"/datasets/([^/]+/[^/]+)/resolve/{COMMIT}/(.+)", path):
            data = self.repositories[found[1]][unquote(found[2])]
            return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{hash(data):x}"'}, data
        return 404, {"X-Error-Code": "EntryNotFound"}, b""


@pytest.fixture
def hub(home, monkeypatch, serving):
    kept = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, body = kept.answer(urlsplit(self.path).path)
            kept.asked.append(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": len(body)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, form, *arguments):
            pass

    with serving(Handler) as kept.url:
        monkeypatch.setenv("HF_ENDPOINT", kept.url)
        monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
        yield kept


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("openai/gsm8k", HubName("openai/gsm8k", None, None)),
        ("openai/gsm8k:train", HubName("openai/gsm8k", None, "train")),
        ("hf:openai/gsm8k:main:test", HubName("openai/gsm8k", "main", "test")),
        ("hf:some/set.csv", HubName("some/set.csv", None, None)),
        ("some/set.csv", None),
        ("math-500", None),
        ("hf:one", None),
        ("../up", None),
        ("/etc/passwd", None),
        ("a/b/c", None),
        ("a/b:c:d:e", None),
        ("a/b:../c", None),
    ],
)
def test_names_of_the_hub(text, name):
    assert HubName.parse(text) == name


def test_a_dataset_of_the_hub_is_downloaded_once_and_read_in_the_order_of_its_files(hub):
    hub.repositories["some/sums"] = {
        "README.md": b"",
        "default/test/0001.parquet": sums(3),
        "default/test/0000.parquet": sums(1, 2),
        "default/train/0000.parquet": sums(9),
    }
    said = []
    first = load_dataset("some/sums", say=said.append)
    assert [problem.answer for problem in first.problems] == ["2", "4", "6"]
    assert [problem.id for problem in first.problems] == ["sums:1", "sums:2", "sums:3"]
    assert first.source.endswith(
        f"3 of 3 problems; problem from 'question', answer; commit {COMMIT} of refs/convert/parquet"
    )
    assert len(said) == 1
    assert said[0].startswith("Downloading some/sums, default, test (0.0 MB) from http")
    asked = len(hub.asked)
    hub.repositories.clear()
    assert load_dataset("hf:some/sums", say=said.append).problems == first.problems
    assert (len(said), len(hub.asked)) == (1, asked)


def test_config_and_split_are_those_named_and_else_the_usual_or_only_ones(hub):
    hub.repositories["some/sums"] = {
        "main/test/0000.parquet": sums(1),
        "main/train/0000.parquet": sums(2),
    }
    for name, answer in (("", "2"), (":train", "4"), (":main:train", "4"), (":main:test", "2")):
        (problem,) = load_dataset(f"some/sums{name}").problems
        assert problem.answer == answer
    hub.repositories["some/many"] = {
        "easy/train/0000.parquet": sums(1),
        "hard/dev/0000.parquet": sums(2),
        "hard/validation/0000.parquet": sums(3),
    }
    assert load_dataset("some/many:easy:train").problems[0].answer == "2"
    for name, words in (
        ("", "several configs: easy, hard"),
        (":train", "several configs: easy, hard"),
        (":soft:test", "no config 'soft'; there are: easy, hard"),
        (":hard:test", "no split 'test'; there are: dev, validation"),
    ):
        with pytest.raises(DatasetError, match=words):
            load_dataset(f"some/many{name}")


def test_a_clone_is_read_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {
        "sums/README.md": b"",
        "sums/main/train-00000-of-00001.parquet": sums(9),
        "sums/main/test-00000-of-00002.parquet": sums(1, 2),
        "sums/main/test-00001-of-00002.parquet": sums(3),
        "sums/socratic/test-00000-of-00001.parquet": sums(8),
        "one/data/validation-00000-of-00001.parquet": sums(4),
        "lines/train.jsonl": b'{"problem": "5 + 5?", "answer": "10"}',
        "some/sums/default/test/0000.parquet": sums(6),
        "none/0000.parquet": sums(7),
        "cut/data/test-00000-of-00003.parquet": sums(1),
        "cut/data/test-00001-of-00003.parquet": sums(2),
        "many/data/test-00001-of-99999999999.parquet": sums(1),
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for dataset, wanted in (
        ("sums/main", ["2", "4", "6"]),
        ("sums:main:train", ["18"]),
        (f"{tmp_path}/sums:socratic:test", ["16"]),
        ("one", ["8"]),
        ("lines", ["10"]),
        ("some/sums", ["12"]),
    ):
        assert [problem.answer for problem in load_dataset(dataset).problems] == wanted
    assert load_dataset("sums/main").problems[2].id == "main:3"
    for dataset, words in (
        ("sums", "several configs: main, socratic"),
        ("sums:main:dev", "no split 'dev'; there are: test, train"),
        ("none", "none has no files that are named by their split"),
        ("cut", "cut lacks a part of test: 00002 of 00003"),
        ("many", "many lacks a part of test: 00000 of 99999999999"),
    ):
        with pytest.raises(DatasetError, match=words):
            load_dataset(dataset)


def test_columns_and_answers_are_named_as_for_a_file(hub):
    rows = [{"prompt": "1 + 1?", "final": "02"}]
    hub.repositories["some/other"] = {"default/train/0000.parquet": parquet(rows)}
    options = DatasetOptions(columns={"problem": "prompt", "answer": "final"}, answers="number")
    (problem,) = load_dataset("some/other", options=options).problems
    assert (problem.question, problem.answer) == ("1 + 1?", "2")


def test_what_the_hub_refuses_is_a_sentence_and_nothing_is_kept(hub, home):
    hub.repositories["some/unconverted"] = None
    hub.repositories["some/empty"] = {"README.md": b""}
    for name, words in (
        ("some/nothing", "no file some/nothing, and no dataset some/nothing on the hub"),
        ("some/gated", "some/gated is gated"),
        ("some/unconverted", "has not converted the dataset some/unconverted to Parquet"),
        ("some/empty", "has no files that are named by their split"),
    ):
        with pytest.raises(DatasetError, match=words) as caught:
            load_dataset(name)
        assert caught.value.hint
    assert not (home / "datasets").exists()


def test_a_download_that_breaks_off_leaves_nothing(hub):
    hub.repositories["some/sums"] = files = {
        "default/test/0000.parquet": sums(1),
        "default/test/0001.parquet": None,
    }
    answer = hub.answer

    def broken(path):
        if path.endswith("0001.parquet"):
            return 403, {}, b"not this one"
        files["default/test/0001.parquet"] = b""  # it is listed all the same
        return answer(path)

    hub.answer = broken
    name = HubName.parse("some/sums")
    with pytest.raises(DatasetError, match=r"no file some/sums, .* cannot be downloaded: .*403"):
        hub_files(name)
    assert list(name.folder.iterdir()) == []
    files["default/test/0001.parquet"] = sums(2)
    hub.answer = answer
    assert len(load_dataset("some/sums").problems) == 2


@pytest.mark.slow
def test_the_librarys_environment_says_where_the_hub_is_and_whether_there_is_a_network(
    hub, tmp_path
):
    """In a process of its own: from the variables to the problems, or to a sentence."""
    hub.repositories["some/sums"] = {"default/test/0000.parquet": sums(4)}
    program = """
from tts.base.errors import DatasetError
from tts.datasets.load import load_problems
try:
    print(load_problems("some/sums")[0].answer)
except DatasetError as error:
    print(error.message)
"""

    def run(**variables):
        environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), **variables}
        command = [sys.executable, "-c", program]
        return subprocess.check_output(command, env=environment, text=True).strip()

    offline = run(HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    assert offline == "The dataset some/sums has not been downloaded, and HF_HUB_OFFLINE is set."
    assert "cannot be downloaded: " in run(HF_ENDPOINT="http://127.0.0.1:9")
    assert run(HF_ENDPOINT=hub.url) == "8"
    assert run(HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1") == "8"


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
