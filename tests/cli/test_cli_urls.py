"""Commands on a deployment whose engines run already: every request goes to a stand-in by URL."""

import json
import os

import pytest
import yaml
from tests.commands import prepared
from tests.endpoints.openai.stand_in import TOKENIZER, StandIn, answering

SEARCH = ("--strategy", "beam-search", "--n", "4", "--set", "num_iterations=2")
RUN = ("--limit", "3", "--set", "max_tokens=8", *SEARCH)
PRM = """
from prm_of_a_neighbour import long


def score(question, steps):
    return 1 / (1 + long(steps[-1]))


def batch(chains):
    return [score(*chain) for chain in chains]


def broken(question, steps):
    raise KeyError("weights")


class Prm:
    def score(self, question, steps):
        return score(question, steps)
"""
STRATEGY = """
from tts.search import SampleSearch, SampleSearchConfig, SearchConfig
from tts.strategies.strategy import Strategy


class Config(SearchConfig):
    def new_search(self, seed, answer_of):
        return SampleSearch(SampleSearchConfig(n=self.n, max_tokens=self.max_tokens), seed)


MINE = Strategy("mine", "chains", Config, "best")


def search(problem, seed):
    return SampleSearch(SampleSearchConfig(n=2, max_tokens=8), seed)
"""


@pytest.fixture(scope="module")
def url():
    """The stand-in, in a thread of its own."""
    with answering(StandIn("vllm")) as found:
        yield found


@pytest.fixture
def tts(home):
    """A command in a process of its own; its exit code, and what it has said in one line."""

    def tts(*arguments):
        variables = {"PATH": os.environ["PATH"], "HOME": str(home), "TTS_HOME": str(home)}
        code, out, err = prepared().run([str(each) for each in arguments], variables, 60)
        return code, " ".join(f"{out} {err}".split())

    return tts


@pytest.fixture
def deployment(url, tmp_path):
    common = {"url": url, "tokenizer": str(TOKENIZER.checkpoint)}
    data = {
        "name": "far",
        "target": "openai",
        "generator": {**common, "max_seq_len": 160, "in_flight_requests": 8},
        "verifier": {
            **common,
            "max_seq_len": 192,
            "in_flight_tokens": 512,
            "format": "rlhflow",
            "labels": ["+", "-"],
        },
    }
    file = tmp_path / "far.yaml"
    file.write_text(yaml.safe_dump(data))
    (tmp_path / "prm.py").write_text(PRM)
    (tmp_path / "prm_of_a_neighbour.py").write_text("long = len")
    (tmp_path / "search_of_mine.py").write_text(STRATEGY)
    return file


def cut(run):
    """Leave half of a run; the digest of its trees."""
    digest = digest_of(run)
    (run / "summary.json").unlink()
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(lines[: len(lines) // 2]))
    return digest


def digest_of(run):
    return json.loads((run / "summary.json").read_text())["tree_digest"]


def test_solve_bench_and_resume(tts, deployment, tmp_path):
    code, said = tts("solve", deployment, "Compute 2 + 2.", *SEARCH, "--set", "max_tokens=8")
    assert code == 0, said
    assert "vLLM" in said
    run = tmp_path / "run"
    code, said = tts("bench", deployment, *RUN, "--out", run)
    assert code == 0, said
    assert "deployment far, dataset demo: 3 problems" in said, "the table"
    digest = cut(run)
    code, said = tts("bench", "--resume", run)
    assert code == 0, said
    assert digest_of(run) == digest


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("serve", 2, "run already"),
        ("build-engines", 0, "nothing to build, it runs at"),
        ("plan", 0, "The generator runs at http"),
        ("doctor", 0, "vLLM"),
        ("lint", 0, "0 errors"),
        ("tune", 2, "runs at http"),
        ("study", 2, "runs at http"),
    ],
)
def test_what_other_commands_say(tts, deployment, command, code, told):
    found, said = tts(command, deployment)
    assert told in said
    assert found == code, said
    assert "pair" not in said


def test_a_function_scores_a_benchmark_which_goes_on_with_the_changed_file(
    tts, deployment, tmp_path
):
    run, file = tmp_path / "run", tmp_path / "prm.py"
    code, said = tts("bench", deployment, *RUN, "--verifier", f"{file}:Prm", "--out", run)
    assert code == 0, said
    assert "verifier at http" not in said
    config = json.loads((run / "run.json").read_text())
    assert config["functions"] == {"verifier": "prm.Prm"}
    assert config["sources"]["verifier"]["file"] == str(file)
    digest = cut(run)
    code, said = tts("bench", "--resume", run)
    assert code == 1
    assert said.endswith(f"tts bench --resume {run} --verifier {file}:Prm")
    file.write_text(PRM + "\n# changed\n")
    again = ("bench", "--resume", run, "--verifier", f"{file}:Prm")
    code, said = tts(*again)
    assert code == 0, said
    assert f"{file}, which has the verifier, has changed" in said
    assert "prm.py was changed: the first" in said
    assert digest_of(run) == digest
    assert tts("report", run)[0] == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("prm.py:broken", "prm.broken raised KeyError: 'weights'."),
        ("prm.py:none", "has no none. Names in it: score, batch, broken, Prm."),
        ("other.py:score", "There is no file"),
        ("pmr.py:score", "Did you mean prm.py? Give FILE.py:NAME."),
        ("prm.py", "Give FILE.py:NAME. Names in it: score, batch, broken, Prm."),
        ("wrong.py:score", "wrong.py raised ModuleNotFoundError: No module named 'nothing_here'"),
        ("json.py:score", "has the name of another module"),
    ],
)
def test_what_a_function_lacks_is_said(tts, deployment, tmp_path, name, told):
    (tmp_path / "wrong.py").write_text("import nothing_here\n")
    (tmp_path / "json.py").write_text("")
    code, said = tts("bench", deployment, *RUN, "--verifier", tmp_path / name)
    assert code in (1, 2)
    assert told in said
    # the user's own code ends with its own traceback, from its own first line on
    assert ("Traceback" in said) == (" raised " in told)
    assert "orchestrator/tts" not in said


@pytest.mark.parametrize(
    ("name", "strategy", "given"),
    [
        ("MINE", "mine", ("--n", "2", "--set", "max_tokens=8")),
        ("Config", "search_of_mine.Config", ("--n", "2", "--set", "max_tokens=8")),
    ],
)
def test_a_strategy_in_a_file(tts, deployment, tmp_path, name, strategy, given):
    run, named = tmp_path / "run", f"{tmp_path / 'search_of_mine.py'}:{name}"
    code, said = tts("bench", deployment, "--limit", "1", "--strategy", named, *given, "--out", run)
    assert code == 0, said
    assert json.loads((run / "run.json").read_text())["strategy"] == strategy


def test_a_run_of_a_function_in_a_file_goes_on_with_it(tts, deployment, tmp_path):
    run, named = tmp_path / "run", f"{tmp_path / 'search_of_mine.py'}:search"
    code, said = tts("bench", deployment, "--limit", "2", "--strategy", named, "--out", run)
    assert code == 0, said
    assert json.loads((run / "run.json").read_text())["strategy"] == "search_of_mine.search"
    digest = cut(run)
    code, said = tts("bench", "--resume", run)
    assert code == 1
    assert said.endswith(f"tts bench --resume {run} --strategy {named}")
    code, said = tts("bench", "--resume", run, "--strategy", named)
    assert code == 0, said
    assert digest_of(run) == digest
    assert tts("report", run)[0] == 0
