"""`--json`: one document on stdout, of the type that the reference page describes."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.documents import document, error
from tests.cli.runner import LLAMA, commands, tts, written
from tests.golden.folders import unpacked
from tests.lab.tuning.samples import LOADS, samples_of

from tts.base.errors import Interrupted
from tts.build.spec import load_deployment
from tts.cli import study
from tts.cli.documents import DOCUMENTS
from tts.cli.json_output import plain
from tts.gateway.database import database_file
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.recorder import Recorder
from tts.lab.study.folder import limits_digest
from tts.lab.tuning.measure import Measured, analyse
from tts.lab.tuning.tune import Tuned


def printed(command, *words, code=0):
    """The document that a command prints."""
    done = tts(*command.split()[1:], *words, "--json")
    assert done.code == code, done.said
    return document(command, done.out)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    where = tmp_path_factory.mktemp("runs")
    for name in (
        *("decoupled", "lockstep", "budget", "servers", "interrupted", "group"),
        *("unreferenced", "program"),
    ):
        unpacked(name, where)
    return where


def test_every_command_with_the_option_has_a_document_on_the_page():
    with_json = {
        " ".join(["tts", *path])
        for path, command in commands()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    described = {name.partition(" --")[0] for name in DOCUMENTS}
    described = {"tts list" if name.startswith("tts list ") else name for name in described}
    assert with_json == described


def test_plan_of_gpus_of_this_machine_and_of_engines_elsewhere(tmp_path):
    plan = printed("tts plan", LLAMA)
    assert plan["host_memory"] is plan["written"] is None
    gpus = plan["gpu_memory"]
    (gpu,) = gpus["gpus"]
    used = sum(sum(rank[part] for part in rank if part.endswith("_bytes")) for rank in gpu["ranks"])
    assert used + gpu["server_bytes"] + gpu["free_bytes"] == gpu["total_bytes"]
    assert gpus["excess_bytes"] == {}
    host = printed("tts plan", "demo")["host_memory"]
    assert host["resident_bytes"] == host["server_bytes"] + sum(
        engine["resident_bytes"] for engine in host["engines"].values()
    )
    started = printed("tts plan", "qwen3-8b-prm-7b-h100-vllm")
    assert started["gpu_memory"]["engines"]["generator"]["kv_cache_tokens_in_file"] is None
    assert started["commands"]["verifier"]["argv"][:2] == ["vllm", "serve"]
    url = {"tokenizer": "Owner/name", "max_seq_len": 512}
    file = tmp_path / "urls.yaml"
    both = {"generator": {"url": "http://a:1", "in_flight_requests": 8, **url}}
    both |= {"verifier": {"url": "http://b:1", "in_flight_tokens": 512, **url}}
    file.write_text(json.dumps({"name": "urls", "target": "openai", **both}))
    elsewhere = printed("tts plan", str(file))
    assert elsewhere["target"] is elsewhere["gpu_memory"] is None
    assert elsewhere["remotes"].keys() == {"generator", "verifier"}


def test_plan_says_what_it_has_written(unplanned):
    before = printed("tts plan", unplanned)
    assert before["written"] is None
    assert before["gpu_memory"]["engines"]["generator"]["kv_cache_tokens_in_file"] == 320
    assert printed("tts plan", unplanned, "--write")["written"] == str(unplanned)
    assert printed("tts plan", unplanned, "--write")["written"] is None


def test_lint_counts_and_keeps_its_exit_code(tmp_path):
    assert printed("tts lint", "demo-gpu")["errors"] == 0
    file = written(tmp_path, LLAMA, generator__kv_cache__tokens=4_000_000)
    found = printed("tts lint", file, code=1)
    assert found["errors"] == 1
    assert [each["severity"] for each in found["findings"]].count("error") == 1


def test_doctor():
    done = tts("doctor", "demo", "--json")
    seen = document("tts doctor", done.out)
    assert done.code == any(each["state"] == "missing" for each in seen["observations"])
    assert seen["deployment"] == "demo"


@pytest.mark.parametrize("stopped", [False, True])
def test_tune(monkeypatch, tmp_path, stopped):
    spec = load_deployment("demo")
    samples = samples_of(1.0, 0.5, LOADS, (1.0, 1.0))
    engines = (
        analyse(Measured("generator", 64, samples), spec),
        analyse(Measured("verifier", 4096, samples[:1]), spec),
    )
    tuned = Tuned(engines, tmp_path / "tune.json", Interrupted("Stopped.") if stopped else None)
    monkeypatch.setattr(study, "tune_engines", lambda *words, **options: tuned)
    found = printed("tts tune", "demo", code=130 if stopped else 0)
    generator, verifier = found["engines"]
    assert found["stopped"] == stopped
    assert (generator["proposal"] is None) == stopped
    assert (verifier["proposal"], verifier["levels"], found["written"]) == (None, [], False)


def test_simulate_and_its_placements():
    found = printed("tts simulate", "--limit", 2, "--n", 4, "--schedule", "lockstep")
    assert found["simulated"] is True
    (outcome,) = found["outcomes"]
    assert (outcome["schedule"], len(outcome["latencies_s"])) == ("lockstep", 2)
    words = ("--concurrency", 1, "--gpus", 1, "--n", 4)
    placed = document(
        "tts simulate --placements", tts("simulate", LLAMA, "--placements", *words, "--json").out
    )
    assert placed["simulated"] is True
    assert placed["runs"][0]["placement"] == placed["advice"][0]["placement"]


def test_requests_and_keys_of_the_gateway():
    recorder = Recorder(Ledger(database_file()), keeps_prompts=True)
    record = recorder.begin("/v1/chat/completions")
    record.model, record.outcome, record.status, record.prompt = "demo", "ok", 200, "wäre\n\ud800?"
    record.t1 = record.t2 = record.t0 + 0.001
    record.t3 = record.t4 = record.t5 = record.t0 + 0.5
    record.prompt, record.key, record.search_tokens = "wäre\n?", "k", 3
    recorder.end(record)
    recorder.close()
    (found,) = printed("tts gateway requests")
    assert (found["id"], found["prompt"]) == (record.id, "wäre\n?")
    assert found["gateway_latency_s"] == pytest.approx(0.001)
    assert printed("tts gateway requests", "--until", "1h") == []
    assert tts("gateway", "requests", "--json", "--format", "jsonl").code == 2
    (used,) = printed("tts gateway usage", "--by", "key", "--by", "model")
    assert (used["key"], used["model"], used["day"], used["search_tokens"]) == ("k", "demo", "", 3)
    assert printed("tts gateway keys list") == []
    tts("gateway", "keys", "create", "a", "--tokens-per-minute", 9)
    (key,) = printed("tts gateway keys list")
    assert (key["name"], key["limits"]["tokens_per_minute"], key["revoked"]) == ("a", 9, None)


def test_report_of_runs(kept):
    names = ("decoupled", "budget", "servers", "unreferenced")
    for name in names:
        found = printed("tts report", kept / name)
        (row,) = found["rows"]
        summary = json.loads((kept / name / "summary.json").read_text())
        for field in ("accuracy", "wall_s", "tree_digest", "problems"):
            assert row["summary"][field] == summary[field]
        assert (row["run"], found["pairs"]) == (str(kept / name), [])
        assert Path(found["page"]).is_file()
    both = printed("tts report", kept / "decoupled", kept / "lockstep", "--format", "csv")
    assert [row["summary"]["schedule"] for row in both["rows"]] == ["decoupled", "lockstep"]
    assert both["figures"]
    assert all(Path(file).is_file() for file in both["figures"])


def test_report_of_a_comparison(kept):
    found = printed("tts report", kept / "group")
    assert len(found["rows"]) > len({row["run"] for row in found["rows"]}) > 5
    assert found["unfinished"] == {str(kept / "group"): []}


def test_report_of_a_study(tmp_path):
    file = unpacked("study", tmp_path) / "study.json"
    study = json.loads(file.read_text())
    limits = limits_digest(load_deployment("demo"))  # its checkpoints lie elsewhere now
    file.write_text(json.dumps({**study, "limits_digest": limits}))
    found = printed("tts report", tmp_path / "study")
    assert found["rows"] == []
    assert all(each["text"] for each in found["advice"])


def test_compare(kept):
    found = printed("tts report", kept / "decoupled", kept / "lockstep", kept / "interrupted")
    assert "schedule" in [setting["name"] for setting in found["settings"]]
    assert [pair["other"] for pair in found["pairs"]] == [
        str(kept / "lockstep"),
        str(kept / "interrupted"),
    ]
    assert {cost["name"] for cost in found["pairs"][0]["costs"]} >= {"seconds", "generated_tokens"}


def test_runs(kept, tmp_path):
    listed = {run["name"]: run for run in printed("tts runs list", kept)}
    assert listed["decoupled"]["state"] == "finished"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    (bad,) = printed("tts runs list", tmp_path)
    assert (bad["state"], bad["strategy"]) == ("damaged", None)
    assert "run.json" in bad["damage"]
    assert printed("tts runs list") == []


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("plan", "nowhere"), "ConfigError", 2),
        (("plan",), "UsageError", 2),
        (("lint", "demo", "--nope"), "UsageError", 2),
        (("report", ".", "."), "UsageError", 2),
        (("report", "/nowhere"), "WrongFolder", 2),
        (("bench", "demo", "--strategy", "beem-search"), "ConfigError", 2),
        (("solve", ""), "ConfigError", 2),
        (("runs", "list", "/nowhere"), "WrongFolder", 2),
    ],
)
def test_an_error_is_a_document_and_said_on_stderr(words, kind, code):
    done = tts(*words, "--json")
    found = error(done.out)
    assert (done.code, found["kind"], found["exit_code"]) == (code, kind, code)
    if kind != "UsageError":
        assert f"error: {found['message']}" in done.err
    done = tts(*words)
    assert (done.code, done.out) == (code, "")


@dataclass(frozen=True)
class Numbers:
    values: tuple[float, ...]
    by_name: dict[str, float]


@given(st.lists(st.floats()))
def test_a_number_is_as_python_writes_it_or_null(values):
    data = plain(Numbers(tuple(values), {str(i): value for i, value in enumerate(values)}))
    text = json.dumps(data, allow_nan=False)
    expected = [value if math.isfinite(value) else None for value in values]
    assert json.loads(text)["values"] == expected == list(data["by_name"].values())
    assert all(repr(value) in text for value in values if math.isfinite(value))


def test_what_has_no_place_in_a_document_is_a_bug():
    with pytest.raises(TypeError, match="set has no place"):
        plain({"x": {1}})
