"""What a shell completes: the names that there are, and quickly."""

import os
import subprocess
import sys

import pytest
from tests.cli.runner import commands
from tests.commands import prepared

from tts.build.spec import bundled_deployments
from tts.cli import completion
from tts.datasets.hub import KNOWN
from tts.runs.folder import CONFIG, GROUP, STUDY
from tts.strategies.names import STRATEGY_NAMES

HEAVY = ("numpy", "pydantic", "yaml", "tokenizers", "aiohttp", "grpc", "torch")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("complete", "word", "offered"),
    [
        (completion.deployments, "", [*bundled_deployments(), "mine.yaml"]),
        (completion.deployments, "mi", ["mine.yaml"]),
        (completion.deployments, "./m", []),  # the shell completes paths
        (completion.strategies, "", list(STRATEGY_NAMES)),
        (completion.strategies, "be", ["best-of-n", "beam-search"]),
        (completion.strategies_or_all, "a", ["adaptive-vote", "auto", "all"]),
        (completion.datasets, "", ["demo", *KNOWN, "mine.jsonl"]),
    ],
)
def test_names_are_those_there_are_and_files_here(folder, complete, word, offered):
    for name in ("mine.yaml", ".hidden.yaml", "notes.txt", "mine.jsonl"):
        (folder / name).touch()
    assert complete(word) == offered


def test_runs_are_those_here_and_those_that_are_kept_the_newest_first(folder):
    kinds = {"old": CONFIG, "comparison": GROUP, "study": STUDY}
    for place in (folder / "runs", folder / "home" / "runs"):
        for age, (name, file) in enumerate(kinds.items()):
            (place / name).mkdir(parents=True)
            (place / name / file).touch()
            os.utime(place / name, (age, age))
        (place / "not-a-run").mkdir()
    newest_first = ["study", "comparison", "old"]
    here = [f"runs/{name}" for name in newest_first]
    assert completion.runs("") == here + [f"home/runs/{name}" for name in newest_first]
    assert completion.runs("runs/s") == ["runs/study"]


def test_without_a_usable_home_nothing_is_said(folder, monkeypatch):
    monkeypatch.setenv("TTS_HOME", "/dev/null")
    assert completion.runs("") == []


def completed(words, **variables):
    """What the shell is offered for the last word."""
    asked = {
        "_TTS_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    _, out, err = prepared().run([], {**os.environ, **asked, **variables}, timeout_s=60)
    assert err == ""
    return out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tts plan dem", "demo"),
        ("tts gateway dem", "demo"),
        ("tts gateway ke", "keys"),
        ("tts bench demo --strategy bea", "beam-search"),
        ("tts bench demo --dataset gs", "gsm8k"),
        ("tts init --target open", "openvino"),
    ],
)
def test_the_shell_is_offered_names(words, offered):
    assert offered in completed(words.split(" "))


def test_completing_imports_nothing_heavy():
    kinds = ["deployments", "strategies_or_all", "datasets", "runs"]
    calls = "\n".join(f"completion.{kind}('')" for kind in kinds)
    program = (
        f"import sys, tts.cli\nfrom tts.cli import completion\n{calls}\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_every_argument_that_takes_such_a_name_is_completed():
    takes = {"DEPLOYMENT", "[DEPLOYMENT]", "RUN", "RUN|FILE"}
    for path, command in commands():
        for parameter in command.params:
            named = parameter.name in ("strategy", "dataset", "deployment")
            if named or parameter.metavar in takes:
                assert parameter._custom_shell_complete is not None, (path, parameter.name)
