"""`tts score` from its input to its files: goes on after a kill, asks nothing twice."""

import json
from pathlib import Path

import pytest
from tests.build.sandboxes import OPEN
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.base.errors import DatasetError, FunctionError, RunError
from tts.build.spec import load_deployment
from tts.lab.observer import Observer
from tts.lab.scoring.measurement import measure
from tts.lab.scoring.score_folder import LOG
from tts.lab.scoring.score_run import ScoreRequest, chains_of_run, score_chains
from tts.lab.scoring.tables import write_tables
from tts.prompting import Models
from tts.session import Session
from tts.session.functions import source_of

PRM = r"""
from pathlib import Path
ASKED = Path(__file__).with_name("asked")

def score(question, steps):
    with ASKED.open("a") as asked:
        print(question, len(steps), file=asked)
    if "broken" in question:
        raise ValueError("no such question")
    return 0.75 if "{" + question[-1] in steps[-1] else 0.25
"""
BOX = r"So it is \boxed{%s}."


@pytest.fixture
def verifier(tmp_path):
    file = tmp_path / f"{tmp_path.name}.py"  # modules of one name exclude each other
    file.write_text(PRM)
    return file


def asked(verifier):
    file = verifier.with_name("asked")
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


def request(verifier, file, **changes):
    plain = {"dataset": None, "limit": 2, "n": 2, "seed": 0, "server": None, "endpoints": ()}
    command = ("tts", "score", "demo", "FILE")
    fields = plain | {"deployment": "demo", "input": file, "command": command}
    own = {} if "source" in changes else {"source": source_of(f"{verifier}:score")}
    return ScoreRequest(**fields | own | changes)


def written(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def candidates(tmp_path):
    rows = [
        {"problem": f"q{n}", "answer": str(n), "candidates": [BOX % n, ["a", BOX % 9], ["a", "b"]]}
        for n in range(3)
    ]
    return written(tmp_path / "candidates.jsonl", rows)


def tables(scored):
    write_tables(scored, measure(scored.chains, length_unit=scored.length_unit))
    return {
        file.name: file.read_bytes()
        for file in scored.folder.iterdir()
        if file.suffix in (".jsonl", ".csv", ".parquet") and file.name != LOG
    }


def test_candidates_come_ranked_and_judged_and_equal_steps_are_asked_once(
    verifier, candidates, tmp_path
):
    scored = score_chains(request(verifier, candidates), tmp_path / "out", Observer())
    assert [each.completions[0].node for each in scored.rankings] == [(0,)] * 3
    assert [each.correct for each in scored.rankings] == [True] * 3
    assert [each.chain.right for each in scored.chains] == [True, False, False] * 3
    assert sorted(asked(verifier)) == sorted(f"q{n} {k}" for n in range(3) for k in (1, 1, 2, 2))
    assert (scored.cost.steps, scored.cost.requests) == (15, 12)
    assert {"best.jsonl", "candidates.csv", "steps.jsonl", "measures.jsonl"} <= {*tables(scored)}
    (row, *_) = map(json.loads, (scored.folder / "best.jsonl").read_text().splitlines())
    assert row["best"] == 1


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.55, 0.999, 1.0])
def test_what_a_kill_leaves_is_not_scored_again_and_the_files_are_the_same(
    verifier, candidates, tmp_path, kept
):
    folder = tmp_path / "out"
    whole = tables(score_chains(request(verifier, candidates), folder, Observer()))
    everything = len(asked(verifier))
    log = folder / LOG
    content = log.read_bytes()[: round(kept * log.stat().st_size)]
    log.write_bytes(content)
    again = score_chains(request(verifier, candidates), folder, Observer())
    assert tables(again) == whole
    assert len(asked(verifier)) <= everything - content.count(b"\n")
    assert len(log.read_bytes().splitlines()) == 9
    assert {line.split(b",")[0] for line in log.read_bytes().splitlines()} == {
        b'{"name":"candidates:%d/%d"' % (n, k) for n in range(3) for k in (1, 2, 3)
    }


def test_a_failure_says_how_to_go_on_and_keeps_what_there_is(verifier, tmp_path):
    rows = [{"problem": name, "steps": ["a"]} for name in ("q1", "q2", "broken", "q3")]
    file = written(tmp_path / "chains.jsonl", rows)
    with pytest.raises(FunctionError, match="no such question") as failure:
        score_chains(request(verifier, file), tmp_path / "out", Observer())
    assert "of 4 chains are scored and saved in" in failure.value.hint
    assert "Continue with: tts score demo FILE" in failure.value.hint


def test_another_scoring_is_not_continued(verifier, candidates, tmp_path):
    folder = tmp_path / "out"
    score_chains(request(verifier, candidates), folder, Observer())
    other = written(tmp_path / "other.jsonl", [{"problem": "q", "steps": ["a"]}])
    with pytest.raises(RunError, match=r"its input was .* and is now"):
        score_chains(request(verifier, other), folder, Observer())
    verifier.write_text(PRM + "\n")
    with pytest.raises(RunError, match="its verifier was"):
        score_chains(request(verifier, candidates), folder, Observer())
    verifier.write_text(PRM)
    log = folder / LOG
    log.write_text("{}\n" + log.read_text())
    with pytest.raises(RunError, match=f"{LOG}, line 1 is no scored chain"):
        score_chains(request(verifier, candidates), folder, Observer())
    changed = json.dumps({"problem": "x", "candidates": ["y"]})
    candidates.write_text(candidates.read_text() + changed)
    with pytest.raises(RunError, match="its digest was"):
        score_chains(request(verifier, candidates), folder, Observer())
    assert len(asked(verifier)) == 12


def test_chains_without_room_are_refused_by_line_before_anything_is_made(verifier, tmp_path):
    row = {"problem": "q", "steps": ["7 " * 2000]}
    file = written(tmp_path / "long.jsonl", [row])
    assert score_chains(request(verifier, file), tmp_path / "text", Observer()).chains
    with pytest.raises(DatasetError, match=r"long.jsonl, line 1: .* too long for the verifier"):
        score_chains(request(verifier, file, source=None), tmp_path / "none", Observer())
    assert not (tmp_path / "none").exists()


def test_a_program_gets_what_else_the_row_has(tmp_path):
    check = tmp_path / "check.py"
    check.write_text("import json, sys\nprint(json.load(sys.stdin)['extra']['weight'])\n")
    data = load_deployment("demo").model_dump(mode="json")
    data |= {"verifier": {"command": ["python", str(check)]}, "execution": {"sandbox": OPEN}}
    deployment = tmp_path / "mine.yaml"
    deployment.write_text(json.dumps(data))
    rows = [{"problem": "q", "candidates": ["a", "b\n\nc"], "weight": 0.5}]
    file = written(tmp_path / "candidates.jsonl", rows)
    asked_for = request(Path(), file, deployment=str(deployment), source=None)
    scored = score_chains(asked_for, tmp_path / "out", Observer())
    assert [each.scores for each in scored.chains] == [(0.5,), (None, 0.5)]


def test_a_run_is_measured_by_its_log_or_scored_by_another_verifier(
    tiny_deployment, verifier, tmp_path
):
    encode = Models.load(tiny_deployment).generator.encode
    writes = ScriptedGenerator([encode("2"), encode(r"\boxed{4}")], encode("\n\n"))
    endpoints = {"generator": writes, "verifier": ScriptedVerifier()}
    run = tmp_path / "run"
    with Session.open(tiny_deployment, **endpoints) as session:
        options = {"strategy": "best-of-n", "n": 2, "agg_strategy": "mean", "out": run}
        results = list(session.solve_many([("Compute 2 + 2.", "4"), "q"], **options))
    read = chains_of_run(run)
    by_problem = {result.problem.id: result.completions for result in results}
    for chain in read.chains:
        done = by_problem[chain.problem][int(chain.name.rpartition("/")[2]) - 1]
        pairs = zip(done.steps, done.step_scores, strict=True)
        said = [(step, score) for step, score in pairs if step]
        assert chain.steps == tuple(step for step, _ in said)
        assert read.scores[chain.name] == pytest.approx([score for _, score in said])
        assert (chain.right is None) == (chain.reference is None) == (chain.problem == "2")
    scored = score_chains(request(verifier, run), tmp_path / "out", Observer())
    assert {score for each in scored.chains for score in each.scores} <= {0.25, 0.75}
    assert len(asked(verifier)) == scored.cost.requests > 0
