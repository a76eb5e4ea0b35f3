"""The page's text: nothing in it can end a script, and its policy allows its own scripts only."""

import base64
import gzip
import hashlib
import html
import json
import re

import pytest
from tests.reports.page.runs import HOSTILE, write_run

from tts.base.errors import RunError
from tts.reports.figures.charts import Figure
from tts.reports.page import page as page_module
from tts.reports.page.of_runs import facts_of
from tts.reports.page.page import Report

CHART = {"mark": "bar", "data": {"name": "rows"}, "encoding": {"y": {"field": "right"}}}


def figure(**fields):
    plain = {"name": "some", "title": "Some", "reading": "Read.", "rows": [{"right": 1}]}
    return Figure(**(plain | fields))


def elements(page, name):
    return re.findall(rf"<{name}([^>]*)>(.*?)</{name}>", page, re.DOTALL)


def data_of(page, name):
    (text,) = [
        text for attributes, text in elements(page, "script") if f'id="{name}"' in attributes
    ]
    return json.loads(text)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a")


def test_the_policy_allows_exactly_the_scripts_and_styles_of_the_page(run):
    page = Report(run / "report.html", "T", [figure(chart=CHART)], [run]).write().read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in html.unescape(policy).split(";"))
    assert rules["default-src"] == "'none'"

    def hashes(name):
        texts = [
            text for attributes, text in elements(page, name) if "application/" not in attributes
        ]
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]

    assert rules["script-src"].split() == hashes("script")
    assert rules["style-src"].split() == hashes("style")
    assert not re.search(r"\s(style|on\w+)=", re.sub(r"<script.*?</script>", "", page, flags=re.S))


def test_hostile_text_stays_text_everywhere(tmp_path):
    run = write_run(tmp_path / "a", step=HOSTILE, question=HOSTILE, answer=HOSTILE)
    plain = Report(tmp_path / "plain.html", "T", [figure()], [run]).write().read_text()
    hostile = figure(
        title=HOSTILE, reading=HOSTILE, notes=[HOSTILE], rows=[{HOSTILE: HOSTILE, "right": 1}]
    )
    facts = {HOSTILE: {HOSTILE: HOSTILE}}
    report = Report(tmp_path / "b.html", HOSTILE, [hostile], [run], facts, lead=HOSTILE)
    page = report.write().read_text()
    for name in ("script", "style", "b", "img"):
        assert len(elements(page, name)) == len(elements(plain, name))
    assert "<img src=x" not in page
    assert data_of(page, "figure-data")[0]["rows"] == [[HOSTILE, 1]]
    (entry,) = data_of(page, "tree-data")["runs"][0]["problems"]
    assert (entry["question"], entry["answer"]) == (HOSTILE, HOSTILE)
    packed = data_of(page, "packed-trees")[0][0]
    tree = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert tree["thoughts"][0]["text"] == HOSTILE


def test_numbers_that_are_none_and_half_characters_are_no_obstacle(tmp_path):
    run = write_run(tmp_path / "a", step="\ud800", question="\udc00")
    rows = [{"x": float("nan")}, {"x": float("inf"), "y": True}, {"y": None}]
    facts = {"F": {"n": "\ud800"}}
    page = Report(tmp_path / "p.html", "T", [figure(rows=rows)], [run], facts).write()
    (data,) = data_of(page.read_text(), "figure-data")
    assert (data["columns"], data["rows"]) == (
        ["x", "y"],
        [[None, None], [None, True], [None, None]],
    )


def test_of_large_logs_a_page_has_the_trees_of_every_second_problem(tmp_path, monkeypatch):
    runs = [write_run(tmp_path / name, problems=5) for name in "ab"]
    size = sum((run / "events.jsonl").stat().st_size for run in runs)
    for most, ids in ((size, ["p0", "p1", "p2", "p3", "p4"]), (size - 1, ["p0", "p2", "p4"])):
        monkeypatch.setattr(page_module, "MAX_LOG_BYTES", most)
        text = Report(tmp_path / "p.html", "T", [], runs).write().read_text()
        for run in data_of(text, "tree-data")["runs"]:
            assert [entry["id"] for entry in run["problems"]] == ids
        assert ("the trees of one problem in 2" in text) == (most < size)


def test_a_page_without_trees_or_charts_has_no_scripts_of_third_parties(tmp_path):
    page = Report(tmp_path / "p.html", "T", [figure()]).write().read_text()
    assert len(page) < 60_000
    assert "Search trees" not in page


def test_a_folder_that_cannot_be_written_gets_a_sentence(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        Report(tmp_path / "file" / "report.html", "T", [], [run]).write()


def _again(seed):
    return (
        f"tts bench demo --dataset demo --limit 1 --seed {seed} --strategy beam-search "
        "--schedule decoupled --speculation auto --set n=2"
    )


def test_facts_tell_what_runs_share_and_what_each_has_of_its_own(tmp_path):
    runs = [write_run(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2))]
    facts = facts_of(runs)
    assert facts["Configuration"]["strategy"] == "beam-search"
    assert facts["Configuration"]["n"] == 2
    assert (facts["Run a"], facts["Run b"]) == (
        {"seed": 1, "the same search again": _again(1)},
        {"seed": 2, "the same search again": _again(2)},
    )
    assert facts["Configuration"]["run with: tts"] == "1.2.3"
    assert "tts" in facts["This page"]["written by"]
    assert facts_of(runs[:1])["Configuration"]["seed"] == 1
