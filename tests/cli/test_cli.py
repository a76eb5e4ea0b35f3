"""The command line without a server: help, refusals, exit codes; in a process of its own."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from tests.commands import prepared
from tests.runs.runs import log_of, write_run
from typer.main import get_command

from tts.build import paths
from tts.cli import app
from tts.cli.runs import ALL
from tts.strategies.catalog import STRATEGIES
from tts.strategies.names import STRATEGY_NAMES

BUNDLED = paths.deployments_dir() / "demo.yaml"


def tts(*arguments, home, timeout=60):
    """Run `tts` with a home of its own; its exit code, stdout and stderr."""
    variables = {**os.environ, "TTS_HOME": str(home), "COLUMNS": "120"}
    code, out, err = prepared().run(list(map(str, arguments)), variables, timeout)
    assert "Traceback" not in err, err
    assert "This is a bug" not in err, err
    return code, out, err


def deployment(tmp_path, **changes):
    data = yaml.safe_load(BUNDLED.read_text())
    for role in ("generator", "verifier"):
        data[role]["checkpoint"] = str((BUNDLED.parent / data[role]["checkpoint"]).resolve())
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        place[last] = value
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


@pytest.mark.parametrize(
    "command",
    [
        "",
        "init",
        "plan",
        "lint",
        "build-engines",
        "render",
        "serve",
        "gateway",
        "gateway serve",
        "gateway keys create",
        "gateway requests",
        "tune",
        "solve",
        "bench",
        "report",
        "doctor",
    ],
)
def test_every_command_has_help(command, tmp_path):
    code, out, _ = tts(*command.split(), "-h", home=tmp_path)
    assert code == 0
    assert "Usage: tts" in out
    assert "bool" not in out


def test_every_command_that_is_shown_ends_its_help_with_examples(tmp_path):
    def check(command, words):
        assert not command.hidden
        assert not any(getattr(each, "hidden", False) for each in command.params), words
        for name, part in getattr(command, "commands", {}).items():
            check(part, (*words, name))
        if words and words[:2] != ("gateway", "keys") and words != ("runs",):
            assert command.epilog.startswith("Examples:\n"), words
            assert "tts " + " ".join(w for w in words if w != "serve" or words == ("serve",)) in (
                command.epilog
            )

    check(get_command(app), ())


def test_the_version_is_that_of_the_package(tmp_path):
    assert tts("--version", home=tmp_path)[1] == f"tts {version('tts-toolkit')}\n"


def test_quiet_leaves_results_and_errors_and_verbose_adds_tracebacks(tmp_path):
    _, out, err = tts("-q", "runs", "list", home=tmp_path)
    assert (out, err) == ("", "")
    _, out, err = tts("-q", "report", "/nowhere", home=tmp_path)
    assert (out, "error: " in err) == ("", True)
    words = [Path(sys.executable).with_name("tts"), "-v", "report", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr


def test_unknown_deployment_lists_the_bundled_ones(tmp_path):
    code, _, err = tts("build-engines", "nowhere", home=tmp_path)
    assert code == 2
    assert "no deployment 'nowhere'" in err
    assert "demo" in err


def test_unknown_field_is_refused_with_path_value_and_what_is_allowed(tmp_path):
    file = deployment(tmp_path, generator__max_batchsize=3)
    code, _, err = tts("build-engines", file, home=tmp_path)
    assert code == 2
    assert "generator.max_batchsize = 3: unknown field; allowed here: max_seq_len, ch" in err
    assert "api_key_env" not in err  # of a section with a url


def test_missing_checkpoint(tmp_path):
    file = deployment(tmp_path, verifier__checkpoint="/no/such/folder")
    code, _, err = tts("build-engines", file, home=tmp_path)
    assert code == 2
    assert "/no/such/folder" in err


@pytest.mark.parametrize("command", ["build-engines", "render"])
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"labels": {"positive": "good"}}, "verifier.labels.positive: 'good' is "),
        ({"labels": {"negative": "bad"}}, "verifier.labels.negative: 'bad' is "),
        ({"format": "math-shepherd", "step_tag": "done"}, "verifier.step_tag: 'done' is "),
        (
            {
                "format": "custom",
                "template": {"head": "{question}", "answer": "## ", "turn": "Step "},
            },
            "verifier.template: no score can be read between '## ' and ",
        ),
    ],
)
def test_a_verifier_that_cannot_be_asked_is_refused(tmp_path, command, changes, complaint):
    file = deployment(tmp_path, **{f"verifier__{name}": value for name, value in changes.items()})
    code, out, err = tts(command, file, home=tmp_path / "home")
    assert (code, out) == (2, "")
    assert complaint in err
    home = tmp_path / "home"
    assert not any(path.is_file() and path.name != ".build.lock" for path in home.rglob("*"))


def large(tmp_path, **changes):
    """A deployment whose engines are not built on demand."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(BUNDLED.parents[1] / "checkpoints" / "demo-generator", checkpoint)
    with (checkpoint / "large").open("wb") as file:
        file.truncate(60_000_000)
    return deployment(tmp_path, generator__checkpoint=str(checkpoint), **changes)


@pytest.mark.parametrize("command", [("bench", "--limit", "1"), ("solve", "1 + 1", "-d")])
def test_without_large_engines_commands_say_how_to_build_them(tmp_path, command):
    file = large(tmp_path)
    code, _, err = tts(*command, file, home=tmp_path / "home")
    assert code == 1
    assert f"tts build-engines {file}" in err
    assert "Building" not in err
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--strategy", "bean-search"), "no strategy 'bean-search'"),
        (("--n", "10"), "n is 10, which is not a multiple of beam_width (4)"),
        (("--set", "beam_width=0"), "beam_width = 0"),
        (("--set", "agg_strategy=median"), "agg_strategy = 'median'"),
        (("--set", "width=3"), "no parameter 'width'"),
        (("--set", "width"), "NAME=VALUE"),
        (("--schedule", "random"), "'random'"),
        (("--dataset", "/no/file.jsonl"), "no dataset '/no/file.jsonl'"),
        (("--limit", "0"), "at least 1"),
        (("--limit", "1000000000"), "dataset demo has at most 100,000 problems"),
        (("--n", "1000000000"), "n = 1000000000: must be at most 100000"),
        (("--set", "n=["), "at line 1, column 2"),
        (("--set", "n=2024-13-45"), "n = '2024-13-45'"),
        (("--set", "n=" + "9" * 5000), "Exceeds the limit (4300 digits)"),
        (("--strategy", "greedy", "--n", "3"), "strategy greedy has it fixed at 1"),
        (("--strategy", "all", "--n", "10"), "beam-search are not valid: n is 10"),
        (("--strategy", "all", "--set", "beams=3"), "No strategy has a parameter 'beams'"),
        (("--strategy", "all", "--strategy", "greedy"), "every strategy is in all already"),
        (("--strategy", "best-of-n", "--strategy", "best-of-n"), "best-of-n is given twice"),
        (("--strategy", "rebase", "--strategy", "mine.py:own"), "run it by itself"),
        (("--strategy", "rebase", "--strategy", "greedily"), "no strategy 'greedily'"),
        (("--strategy", "rebase", "--strategy", "mcts", "--set", "beams=3"), "that is compared"),
        (("--set", "n=4", "--set", "n=8"), "n is given more than once"),
        (("--n", "4", "--set", "n=8"), "n is given more than once"),
    ],
)
def test_bad_parameters_are_refused_before_any_work(tmp_path, arguments, complaint):
    code, _, err = tts("bench", "demo", *arguments, home=tmp_path)
    assert code == 2
    assert complaint in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_the_help_lists_the_strategies_there_are(tmp_path):
    _, out, _ = tts("bench", "--help", home=tmp_path)
    assert all(name in " ".join(out.replace("│", " ").split()) for name in STRATEGY_NAMES)
    assert ALL not in STRATEGIES


def test_the_strategies_block_of_a_deployment_is_checked_whatever_runs(tmp_path):
    file = deployment(tmp_path, strategies={"beam-search": {"beam_wdth": 2}})
    for command in (
        ("bench", file),
        ("bench", file, "--strategy", "all"),
        ("solve", "1", "-d", file),
    ):
        code, _, err = tts(*command, home=tmp_path / "home")
        assert code == 2
        assert "strategies.beam-search.beam_wdth = 2: not a parameter" in err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nowhere", "1 + 1"), "no deployment 'nowhere'"),
        (("1 + 1", "-d", "nowhere"), "no deployment 'nowhere'"),
        (("demo", "1 + 1", "-d", "demo"), "give one deployment and one question, in quotes"),
        (("What", "is", "1 + 1?"), "give one deployment and one question, in quotes"),
        ((), "Missing argument 'QUESTION'"),
    ],
)
def test_solve_takes_the_deployment_before_the_question_as_bench_does(
    tmp_path, arguments, complaint
):
    code, _, err = tts("solve", *arguments, home=tmp_path)
    assert code in (1, 2)
    assert complaint in " ".join(err.replace("│", " ").split())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("arguments", [("--repair",), ("demo", "--repair")])
def test_repair_is_for_a_run_that_is_resumed(tmp_path, arguments):
    code, _, err = tts("bench", *arguments, home=tmp_path)
    assert code == 2
    assert "goes with --resume DIR" in err


def test_an_empty_question_is_refused_before_any_work(tmp_path):
    for question in ("", "  "):
        code, _, err = tts("solve", question, home=tmp_path)
        assert code == 2
        assert "The question is empty" in err
    assert list(tmp_path.iterdir()) == []


def test_advice_names_the_deployment_as_the_user_did(tmp_path):
    file = large(tmp_path, name="own")
    _, out, _ = tts("lint", file, home=tmp_path / "home")
    assert f"tts build-engines {file}" in "".join(out.split("\n")).replace("  ", "")
    assert "build-engines own" not in out
    code, _, err = tts("bench", file, "--limit", "1", home=tmp_path / "home")
    assert code == 1
    assert f"Run: tts build-engines {file}\n" in err


@pytest.mark.parametrize(
    ("home", "complaint"),
    [
        ("/etc/passwd", "TTS_HOME is '/etc/passwd', where nothing can be kept"),
        ("/etc/passwd/x", "/etc/passwd is not a folder"),
        ("x" * 5000, "a path may have 4,095 bytes"),
        ("~no-such-user", "there is no home folder for '~no-such-user'"),
    ],
)
def test_a_home_that_cannot_be_is_named(home, complaint):
    code, _, err = tts("build-engines", "demo", home=home)
    assert code == 2
    assert complaint in err


@pytest.mark.parametrize(
    "command",
    [
        ("report",),
        ("bench", "--resume"),
        ("bench", "demo", "--out"),
        ("simulate", "--replay"),
    ],
)
def test_a_path_that_no_file_can_have_is_refused(tmp_path, command):
    code, _, err = tts(*command, "x" * 5000, home=tmp_path)
    assert code == 2
    assert "a path may have 4,095 bytes" in " ".join(err.replace("│", " ").split())


def test_a_device_is_no_file_of_traces(tmp_path):
    code, _, err = tts("simulate", "--replay", "/dev/zero", home=tmp_path)
    assert code == 2
    assert "/dev/zero cannot be read as traces" in err
    assert "not a regular file" in err


def test_report_of_what_is_no_run(tmp_path):
    code, _, err = tts("report", tmp_path, home=tmp_path)
    assert code == 1
    assert "holds no run" in err


def test_report_of_two_says_what_differs_the_differences_and_who_is_right(tmp_path):
    ours = write_run(tmp_path / "ours", log_of({"a": True, "b": True, "c": False}))
    log = log_of({"a": True, "b": False, "c": True}, tokens=15)
    theirs = write_run(tmp_path / "theirs", log, seed=7)
    code, out, _ = tts("report", ours, theirs, home=tmp_path)
    text = " ".join(out.split())
    order = ["What differs", "Accuracy against ours", "McNemar", "Cost per problem against ours"]
    assert sorted(order, key=text.index) == order
    for part in (
        "theirs 0 -",
        " 1 1 1 3 1 ",
        "generated tokens 200 200 200 5 15 3 ",
        "b ours ",
        "c theirs ",
    ):
        assert part in text
    assert code == 0
    other = write_run(tmp_path / "other", log_of({"x": None}))
    code, _, err = tts("report", ours, other, home=tmp_path)
    assert code == 1
    assert "no problem in common" in err
    assert tts("report", ours, ours, home=tmp_path)[0] == 2
    same = write_run(tmp_path / "same", log_of({"x": None}))
    text = " ".join(tts("report", other, same, home=tmp_path)[1].split())
    assert "The runs were asked for the same." in text


def test_doctor_answers_in_plain_words(tmp_path):
    _, out, _ = tts("doctor", home=tmp_path)
    for word in ("Python", "Triton server", "CPU engine", "precision bf16", "deployment demo"):
        assert word in out
    assert "tts build-engines demo" in out


def test_commands_work_from_anywhere_by_bundled_name(tmp_path):
    code, _, err = tts("report", Path("nowhere"), home=tmp_path)
    assert code == 1
    assert "nowhere" in err
