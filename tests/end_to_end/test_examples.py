"""Every program in examples/ runs, as a user would start it, and prints what it promises."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.build.sandboxes import KINDS
from tests.end_to_end.gateways import gateway
from tests.endpoints.openai.stand_in import END, TOKENIZER, StandIn, answering
from tests.golden.folders import unpacked

from tts.session import Run

SEARCH_AND_LEARN = ("BEAM_SEARCH", "DVTS", "BEST_OF_N")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TTS = Path(sys.executable).with_name("tts")
MATH = ROOT.parent / "shared" / "data" / "math500_dev.jsonl"

pytestmark = pytest.mark.slow  # heavy imports; the pages' and README's are run by default


@pytest.fixture
def example(new_home, tmp_path):
    """Runs a program of examples/, or `tts`, in an empty folder; gives what it printed."""

    def run(name, *arguments):
        program = [TTS] if name == "tts" else [sys.executable, EXAMPLES / name]
        done = subprocess.run(
            [*program, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "TTS_HOME": str(new_home())},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_table_names_every_example():
    files = {file.name for file in EXAMPLES.iterdir() if file.suffix in (".py", ".ipynb")}
    table = (EXAMPLES / "README.md").read_text()
    assert files == {name for name in files if f"| [{name}]({name}) |" in table}


@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="needs transformers")
def test_a_prm_in_transformers_scores_as_the_engine_does(example):
    asked, _, _, *lines = example("own_prm.py", "Compute 50 - 8.").splitlines()
    assert asked == "Compute 50 - 8.  ->  42"
    assert lines
    for line in lines:
        own, engine, _ = line.split(maxsplit=2)
        assert float(own) == pytest.approx(float(engine), abs=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_code_whose_tests_pass_beats_the_vote(example, kind):
    vote, executed, *_ = example("code_with_tests.py", "--sandbox", kind).splitlines()
    assert vote.split() == ["majority-vote", "0", "of", "3", "right"]
    assert executed.split() == ["best-of-n", "3", "of", "3", "right"]


def test_beam_search_in_one_file_has_the_toolkits_trees(example):
    printed = example("beam_search_in_one_file.py")
    assert printed.count("the same tree: True") == 4


def test_a_strategy_of_ones_own_spends_fewer_tokens_than_the_vote(example):
    *_, own, vote = example("own_strategy.py", "--problems", 5).splitlines()
    assert own.startswith("two-agree")
    assert vote.startswith("majority vote")
    assert int(own.split()[-1]) < int(vote.split()[-1])


@pytest.mark.parametrize(
    "strategy",
    ["ab_mcts.py:AB_MCTS", *(f"search_and_learn.py:{name}" for name in SEARCH_AND_LEARN)],
)
def test_a_strategy_is_taken_from_its_file(example, strategy):
    printed = example("tts", "bench", "demo", "--server", "embedded", "--limit", 2,
                      "--n", 4, "--strategy", EXAMPLES / strategy)  # fmt: skip
    assert "any of n (pass@n)" in printed


def test_a_running_server_answers(example):
    output = [*TOKENIZER.encode(r"The answer is \boxed{42}."), END]
    with answering(StandIn("vllm", output)) as url:
        tokenizer = ROOT / "engines" / "checkpoints" / "demo-generator"
        printed = example("running_server.py", url, tokenizer, "--context", 160, "--n", 4)
    assert "\nanswer: 42\n" in printed
    assert "in 4 requests" in printed


@pytest.mark.server
@pytest.mark.skipif(not importlib.util.find_spec("its_hub"), reason="needs its_hub")
@pytest.mark.parametrize("algorithm", ["beam", "particles"])
def test_its_hub_searches_on_a_gateway(example, served, algorithm):
    with gateway(served) as address:
        asked = ("its_hub_on_gateway.py", address, "demo", "Compute 12 + 30.")
        assert "42" in example(*asked, "--algorithm", algorithm)


def test_answers_keep_their_forms(example):
    printed = example("constrained_answers.py", "--n", 4)
    _, digits, schema = printed.split(" completions have an answer\n")[1:]
    assert digits.split(" x ")[1].split()[0].isdigit()
    assert set(json.loads(schema.split(" x ")[1].splitlines()[0])) == {"value", "unit"}


def test_a_service_answers_while_another_search_is_cancelled(example):
    printed = example("async_service.py")
    assert "urgent: Compute 2 + 2.  ->  4\n" in printed
    assert "Compute (3 + 4) * 5 - 2.  ->  cancelled" in printed
    assert printed.count("Compute 50 - 8.") == 2


def test_a_sweep_saves_its_figure(example, tmp_path):
    printed = example("sweep.py", "--problems", 2, "--most", 2, "--figure", "sweep.html")
    assert [line.split()[-3] for line in printed.splitlines()[1:5]] == ["1", "2", "1", "2"]
    assert '"accuracy"' in (tmp_path / "sweep.html").read_text()


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_exported_runs_go_to_a_tracker(example, tmp_path, monkeypatch, tracker):
    """To one that only writes down what it is told."""
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / f"{tracker}.py").write_text(
        "import contextlib, json\n"
        "def __getattr__(name):\n"
        "    def note(*a, **k):\n"
        "        print(json.dumps([name, a, k]))\n"
        "        return contextlib.nullcontext()\n"
        "    return note\n"
    )
    unpacked("group", tmp_path)
    example("tts", "runs", "export", "group", "--out", "problems.csv")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "trackers"))
    printed = example("track_runs.py", "problems.csv", "--to", tracker).splitlines()
    calls = [json.loads(line) for line in printed if line.startswith("[")]
    names = [line.split()[:2] for line in printed if not line.startswith("[")]
    assert ["greedy", "greedy"] in names
    measures = [a[0] for name, a, _ in calls if name in ("log", "log_metrics")]
    assert len(measures) == len(names)
    assert all(0 <= each["correct"] <= 1 < each["tokens"] for each in measures)
    settings = [k.get("config") or a[0] for name, a, k in calls if name in ("init", "log_params")]
    assert {"strategy", "n", "seed", "dataset", "problems"} <= settings[0].keys()


def test_math_500_is_continued_and_its_run_is_read(example, tmp_path):
    if MATH.is_file():
        data = MATH
    else:
        data = tmp_path / "math.jsonl"
        problems = [{"problem": f"Compute {i} + 9.", "answer": f"{i + 9}"} for i in (3, 4)]
        lines = [json.dumps(problem | {"level": 1}) for problem in problems]
        data.write_text("\n".join(lines))
    asked = ("demo", "--server", "embedded", "--dataset", data, "--limit", 2, "--n", 4)
    first = example("math500.py", *asked, "--out", "run")
    assert "level  problems  right  accuracy" in first
    again = example("math500.py", *asked, "--out", "run")
    assert sorted(first.splitlines()[1:]) == sorted(again.splitlines()[1:])
    run = Run.load(tmp_path / "run")
    read = example("read_run.py", "run")
    assert all(problem.id in read for problem in run.problems)
    assert f"generated_tokens       {run.summary.generated_tokens}\n" in read


def test_the_notebook_runs_cell_by_cell(example, tmp_path):
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)
    program = "\n\n".join("".join(cell["source"]) for cell in cells)
    (tmp_path / "notebook.py").write_text(program)
    printed = example(tmp_path / "notebook.py")
    assert printed.startswith("answer: ")
    assert "accuracy" in printed
