"""A deployment whose verifier is a program: what it is told, what is graded, what a run keeps."""

import json

import pytest
from tests.build.sandboxes import OPEN

from tts.base.errors import ConfigError, DatasetError
from tts.build.spec import Deployment, ExecutionSpec, VerifierCommand
from tts.problem import Problem
from tts.runs.config import prompting_of
from tts.session import Session

CHECK = """
import json, sys
told = json.load(sys.stdin)
assert told["text"] == "def one():\\n    x = 1\\n\\n    return x", told
print(len(told["extra"]["test_list"]) / 2)
"""
ONE = Problem("one", "Compute 1.", extra={"test_list": ["assert one() == 1"]})


@pytest.fixture
def deployment(tiny_deployment, tmp_path):
    """The tiny deployment with a program that scores."""
    (tmp_path / "check.py").write_text(CHECK)
    command = VerifierCommand(command=("python", "check.py")).below(tmp_path)
    execution = ExecutionSpec(sandbox=OPEN)
    return tiny_deployment.model_copy(update={"verifier": command, "execution": execution})


def test_it_gets_the_text_as_written_and_its_tests_grade(deployment, tmp_path):
    def write(prompt):
        return "def one():\n    x = 1\n\n    return x"

    with Session.open(deployment, generator=write) as session:
        (result,) = session.solve_many([ONE], strategy="best-of-n", n=2, out=tmp_path / "run")
        assert {done.step_scores[-1] for done in result.completions} == {0.5}
        assert result.correct
        (again,) = session.solve_many(
            [ONE], strategy="best-of-n", n=2, out=tmp_path / "run", resume=True
        )
        assert again.correct


def test_answers_that_look_at_their_tests_are_counted_and_bad_tests_refused(deployment, tmp_path):
    def write(prompt):
        return "```\nimport gc\ndef one():\n    return 1\n```\nUsage:\n```\nprint(one())\n```"

    with Session.open(deployment, generator=write) as session:
        (result,) = session.solve_many([ONE], strategy="majority-vote", n=2, out=tmp_path / "run")
        assert result.correct
        bad = Problem("bad", "Compute 1.", extra={"test_list": ["print(one())"]})
        with pytest.raises(DatasetError, match="Problem bad has a test that asserts nothing"):
            session.solve(bad, strategy="majority-vote", n=2)
    assert json.loads((tmp_path / "run/summary.json").read_text())["introspective_answers"] == 1


@pytest.mark.parametrize("changed", ["check.py", "more/check.py"])
def test_a_changed_program_is_another_run(deployment, tmp_path, changed):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/check.py").write_text("")
    command = VerifierCommand(command=("python", "check.py", "more/check.py")).below(tmp_path)
    spec = deployment.model_copy(update={"verifier": command})
    before = prompting_of(spec)
    (tmp_path / changed).write_text("print(1)")
    assert prompting_of(spec) != before


@pytest.mark.parametrize("program", ["a_link", "not_there"])
def test_its_program_is_the_one_beside_the_deployment(tmp_path, program):
    (tmp_path / "a_link").symlink_to("/bin/sh")  # as the Python of a virtual environment is
    command = VerifierCommand(command=(f"./{program}",)).below(tmp_path).command
    assert command == (str(tmp_path / program),)


def test_one_that_cannot_be_started_is_refused_before_work(deployment):
    missing = VerifierCommand(command=("no_such_program",))
    spec = deployment.model_copy(update={"verifier": missing})
    with pytest.raises(ConfigError, match="no_such_program"):
        Session.open(spec, generator=lambda prompt: "")


@pytest.mark.parametrize("section", [{"command": []}, {"command": ["a"], "format": "rlhflow"}])
def test_mistakes_are_those_of_a_command(deployment, section):
    data = {**deployment.model_dump(), "verifier": section}
    with pytest.raises(ValueError, match=r"command|format"):
        Deployment.model_validate(data)
