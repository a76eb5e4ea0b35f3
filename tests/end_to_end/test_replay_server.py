"""A recorded demo run, replayed by random engines of another size on a real server."""

import json
import time
import urllib.request

import pytest
import yaml
from tests.end_to_end.commands import carry_out, events, quiet, summary

from tts.build import paths
from tts.build.random_checkpoint import make_random_checkpoint
from tts.build.spec import load_deployment
from tts.lab.bench.replayed_run import as_recorded
from tts.lab.bench.single_run import plan_of, problems_of
from tts.runs.config import RunConfig
from tts.runs.folder import read_config, write_json
from tts.serving.server.start import start_server

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (CHECKPOINTS / "demo-verifier").is_dir(), reason="the demo checkpoints are not here"
    ),
]


@pytest.fixture(scope="module")
def recorded(served, tmp_path_factory):
    """A small run of the demo pair."""
    folder = tmp_path_factory.mktemp("runs") / "recorded"
    code, _, err = served.run("bench", "demo", "--limit", 3, "--n", 4, "--out", folder)
    assert code == 0, err
    return folder


@pytest.fixture(scope="module")
def tts(tmp_path_factory):
    """A home without engines."""
    with quiet(tmp_path_factory.mktemp("home")) as tts:
        yield tts


@pytest.fixture(scope="module")
def pair(tts, tmp_path_factory):
    """The file of a deployment of two random checkpoints, and its server, which runs."""
    folder = tmp_path_factory.mktemp("pair")
    data = yaml.safe_load((paths.deployments_dir() / "demo.yaml").read_text())
    data["name"] = "random"
    for role in ("generator", "verifier"):
        checkpoint = folder / role
        tokenizer = CHECKPOINTS / f"demo-{role}"
        make_random_checkpoint(checkpoint, tokenizer=tokenizer, parameters=1_000_000)
        data[role]["checkpoint"] = str(checkpoint)
    file = folder / "random.yaml"
    file.write_text(yaml.safe_dump(data))
    code, _, err = tts.run("build-engines", file, "--no-verify")
    assert code == 0, err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(tts.home))
        with start_server(load_deployment(str(file))) as server:
            yield file, server


def generated_by(server):
    """Sequences and tokens that the engine says it has generated."""
    with urllib.request.urlopen(f"http://{server.addresses.metrics}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    found = []
    for part in ("count", "sum"):
        start = f"nv_llm_output_token_len_{part}{{"
        mine = [line for line in lines if line.startswith(start) and '"generator"' in line]
        found.append(sum(float(line.rsplit(" ", 1)[1]) for line in mine))
    return tuple(found)


@pytest.mark.slow
def test_random_engines_do_the_recorded_work_under_any_schedule(recorded, pair, tmp_path):
    file, server = pair
    expected = generated_by(server)
    for schedule in ("lockstep", "decoupled"):
        given = RunConfig(
            deployment_source=str(file), dataset="demo", schedule=schedule, speculation="off"
        )
        wanted = as_recorded(given, recorded, set())
        outcome = carry_out(plan_of(*problems_of(wanted)), tmp_path / schedule)
        assert outcome["tree_digest"] == summary(recorded)["tree_digest"]
        assert outcome["accuracy"] == summary(recorded)["accuracy"]
        assert outcome["replay"]["source"] == str(recorded)
        answers = [e for e in events(tmp_path / schedule) if e["event"] == "generated"]
        ends = sum(e["thoughts"][-1]["stop"] == "end" for e in answers)
        tokens = sum(e["tokens"] for e in answers) + ends
        expected = (expected[0] + len(answers), expected[1] + tokens)
        deadline = time.monotonic() + 5
        while generated_by(server) != expected and time.monotonic() < deadline:
            time.sleep(0.05)  # the metrics follow the answers
        assert generated_by(server) == expected


@pytest.mark.slow
def test_a_replay_is_reported_and_resumed_as_one(tts, recorded, pair, tmp_path):
    folder = tmp_path / "run"
    code, out, err = tts.run(
        "bench", pair[0], "--replay", recorded, "--speculation", "off", "--out", folder
    )
    assert code == 0, err
    assert f"replay of {recorded}" in out
    assert "trees and answers as recorded: yes" in out
    (folder / "summary.json").unlink()
    log = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(log[: len(log) // 2]))
    code, out, err = tts.run("bench", "--resume", folder)
    assert code == 0, err
    assert "trees and answers as recorded: yes" in out
    config = read_config(folder)
    config["replay"]["digest"] = "other"
    write_json(folder / "run.json", config)
    code, _, err = tts.run("bench", "--resume", folder)
    assert code == 1
    assert "its replay was" in err


@pytest.mark.slow  # without engines: tests/runs
def test_made_up_text_is_cut_stopped_and_continued_to_the_same_trees(tts, pair, tmp_path):
    chains = [
        {"text": "\n\n".join("x" * length for length in lengths), "sep": "\n\n",
         "step_scores": [0.9 - 0.1 * len(lengths)] * len(lengths)}
        for lengths in ([70, 140, 35], [210, 35], [35, 35, 70, 105], [1400])
    ]  # fmt: skip
    file = tmp_path / "chains.jsonl"
    file.write_text("".join(json.dumps(chain) + "\n" for chain in chains))
    options = ("--replay", file, "--limit", 3, "--n", 4)
    whole, part = tmp_path / "whole", tmp_path / "part"
    code, out, err = tts.run("bench", pair[0], *options, "--schedule", "lockstep", "--out", whole)
    assert code == 0, err
    assert "its text is made up" in out
    assert summary(whole)["accuracy"] is None
    stops = {t["stop"] for e in events(whole) for t in e.get("thoughts", ())}
    assert stops == {"step", "end", "length"}
    code, _, err = tts.run("bench", pair[0], *options, "--out", part)
    assert code == 0, err
    assert summary(part)["tree_digest"] == summary(whole)["tree_digest"]
    (part / "summary.json").unlink()
    log = (part / "events.jsonl").read_text().splitlines(keepends=True)
    (part / "events.jsonl").write_text("".join(log[: len(log) // 3]))
    code, _, err = tts.run("bench", "--resume", part)
    assert code == 0, err
    assert summary(part)["tree_digest"] == summary(whole)["tree_digest"]
