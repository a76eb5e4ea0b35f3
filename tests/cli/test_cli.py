"""The command line without a server: help, refusals, exit codes."""

import shutil
from importlib.metadata import version

import pytest
from tests.cli.runner import commands, tts, written
from tests.runs.runs import log_of, write_run

from tts.base import paths
from tts.cli.command import Command
from tts.cli.options import ALL
from tts.reports import console
from tts.strategies.catalog import STRATEGIES
from tts.strategies.names import STRATEGY_NAMES

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"
TOO_LONG = "x" * 5000


def test_every_command_is_shown_with_help_that_ends_with_examples():
    for words, command in commands():
        done = tts(*words, "-h")
        assert (done.code, done.err) == (0, "")
        assert "Usage: tts" in done.out
        assert "bool" not in done.out
        assert not command.hidden
        assert not any(getattr(each, "hidden", False) for each in command.params), words
        if words and words[:2] != ("gateway", "keys") and words != ("runs",):
            assert command.epilog.startswith("Examples:\n"), words
            shown = [word for word in words if word != "serve" or words == ("serve",)]
            assert " ".join(["tts", *shown]) in command.epilog


def test_help_is_not_cut_off_at_80_columns():
    for words, _ in commands():
        if words != ("list",):  # whose choices stand beside their short form in full
            assert "…" not in tts(*words, "-h", columns=80).out, words


def test_the_gateways_help_has_the_options_that_its_deployment_takes():
    said = tts("gateway", "-h").said
    assert "DEPLOYMENT... | COMMAND" in said
    for word in ("--port", "--tls-certificate", "requests", "keys"):
        assert word in said


def test_the_list_of_commands_says_what_their_own_help_begins_with():
    for words, command in commands():
        if isinstance(command, Command):
            assert command.short_help == " ".join(command.help.split("\n\n")[0].split()), words


def test_the_version_is_that_of_the_package():
    assert tts("--version").out == f"tts {version('tts-toolkit')}\n"


def test_quiet_leaves_results_and_errors_and_verbose_adds_tracebacks(monkeypatch):
    assert "Traceback" in tts("-v", "report", "/nowhere").err
    monkeypatch.setattr(console, "_quiet", False)
    done = tts("-q", "runs", "list")
    assert (done.out, done.err) == ("", "")
    done = tts("-q", "report", "/nowhere")
    assert (done.out, "error: " in done.err) == ("", True)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ("build-engines nowhere", 2, "no deployment 'nowhere'"),
        ("solve nowhere 1+1", 2, "no deployment 'nowhere'"),
        ("solve 1+1 -d nowhere", 2, "no deployment 'nowhere'"),
        ("solve demo 1+1 -d demo", 2, "QUESTION"),
        ("solve What is 1+1?", 2, "QUESTION"),
        ("solve", 2, "QUESTION"),
        ("solve \t", 2, "The question is empty"),
        ("solve demo ", 2, "The question is empty"),
        ("solve demmo", 2, "Did you mean demo?"),
        ("bench --repair", 2, "--repair"),
        ("bench demo --repair", 2, "--repair"),
        ("bench", 2, "DEPLOYMENT"),
        ("report nowhere", 2, "nowhere"),
        (f"report {TOO_LONG}", 2, "4,095 bytes"),
        (f"report nowhere --baseline {TOO_LONG}", 2, "can be no path"),
        (f"bench --resume {TOO_LONG}", 2, "4,095 bytes"),
        (f"bench demo --out {TOO_LONG}", 2, "4,095 bytes"),
        (f"simulate --replay {TOO_LONG}", 2, "4,095 bytes"),
        ("simulate --replay /dev/zero", 2, "/dev/zero"),
        ("study", 2, "DEPLOYMENT"),
        ("study --resume nowhere --quick", 2, "goes on as it began"),
        ("study --resume nowhere --server embedded", 2, "goes on as it began"),
        ("study --resume nowhere", 2, "holds no study"),
        ("study demo-gpu --dataset nothing", 1, "NVIDIA GPU"),
        ("plan nowhere", 2, "no deployment 'nowhere'"),
        ("plan dmeo", 2, "Did you mean demo?"),
        ("plan demo --write", 2, "'openvino'"),
        ("runs trace nothing", 2, "There is no folder"),
        ("gateway keys revoke b", 2, "no key 'b'"),
        ("gateway keys create a --requests-per-minute -1", 2, "--requests-per-minute"),
        ("gateway requests --since yesterday", 2, "is no date"),
        ("bench demo --strategy bean-search", 2, "Did you mean beam-search?"),
        ("bench demo --strategy beam", 2, "Did you mean beam-search?"),
        ("serve mine.yaml", 2, "There is no file mine.yaml. tts init"),
        ("bench demo --n 10", 2, "beam_width (4)"),
        ("bench demo --n 1000000000", 2, "n = 1000000000"),
        ("bench demo --set beam_width=0", 2, "beam_width = 0"),
        ("bench demo --set agg_strategy=median", 2, "agg_strategy = 'median'"),
        ("bench demo --set width=3", 2, "'width'"),
        ("bench demo --set width", 2, "NAME=VALUE"),
        ("bench demo --set beam_widht=2", 2, "Did you mean beam_width?"),
        ("bench demo --set n=[", 2, "line 1, column 2"),
        ("bench demo --set n=2024-13-45", 2, "n = '2024-13-45'"),
        (f"bench demo --set n={'9' * 5000}", 2, "4300 digits"),
        ("bench demo --set n=4 --set n=8", 2, "n is given more than once"),
        ("bench demo --n 4,x", 2, "'x' is not a whole number in '4,x'"),
        ("bench demo --n 1,,4", 2, "a number is missing in '1,,4'"),
        ("bench demo --seed 0,1", 2, "'0,1' must be a whole number. Run the command once for each"),
        ("bench demo --deadline soon", 2, "'soon' must be a number."),
        ("report nowhere --format gif", 2, "--format': 'gif' is not one of"),
        ("bench demo --set temperature=hot", 2, "temperature = 'hot': must be a number"),
        ("bench demo --set n=2.5", 2, "n = 2.5: must be a whole number"),
        ("bench demo --n 4,8,4", 2, "n=4 is given twice"),
        ("bench demo --n 4,10", 2, "n is 10, which is not a multiple of beam_width"),
        ("bench demo --set temperature=0.5,hot", 2, "temperature = 'hot'"),
        (
            "bench demo --n 2,4 --ray --endpoint a:1",
            2,
            "--ray goes with a whole run of one strategy",
        ),
        ("bench demo --n 4 --set n=8", 2, "n is given more than once"),
        ("bench demo --schedule random", 2, "'random'"),
        ("bench demo --dataset /no/file.jsonl", 2, "'/no/file.jsonl'"),
        ("bench demo --dataset math-50", 2, "Did you mean math-500?"),
        ("bench demo --limit 0", 2, "at least 1"),
        ("bench demo --limit 1000000000", 2, "100,000"),
        ("bench demo --strategy greedy --n 3", 2, "fixed at 1"),
        ("bench demo --strategy all --n 10", 2, "n is 10"),
        ("bench demo --strategy all --set beams=3", 2, "'beams'"),
        ("bench demo --strategy all --strategy greedy", 2, "in all already"),
        ("bench demo --strategy best-of-n --strategy best-of-n", 2, "best-of-n is given twice"),
        ("bench demo --strategy rebase --strategy mine.py:own", 2, "There is no file mine.py"),
        ("bench demo --strategy rebase --strategy greedily", 2, "'greedily'"),
        ("bench demo --strategy rebase --strategy mcts --set beams=3", 2, "that is compared"),
    ],
    ids=lambda each: str(each)[:60],
)
def test_mistakes_are_refused_by_name_before_any_work(home, words, code, named):
    done = tts(*words.split(" "))
    assert (done.code, done.out) == (code, "")
    assert named in done.said
    assert not (home / "runs").exists()
    assert not (home / "built").exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"generator__max_batchsize": 3},
            "max_batchsize = 3: unknown field; did you mean max_batch_size?",
        ),
        ({"verifier__checkpoint": "/no/such/folder"}, "/no/such/folder"),
        ({"verifier__labels": ["good", "-"]}, "verifier.labels: 'good' is "),
        (
            {"verifier__format": "math-shepherd", "verifier__step_tag": "done"},
            "verifier.step_tag: 'done' is ",
        ),
        (
            {
                "verifier__format": "custom",
                "verifier__template": {"head": "{question}", "answer": "## ", "turn": "Step "},
            },
            "verifier.template: ",
        ),
    ],
)
@pytest.mark.parametrize("command", ["build-engines", "render"])
def test_a_deployment_that_cannot_be_is_refused_by_its_field(
    tmp_path, home, command, changes, named
):
    done = tts(command, written(tmp_path, **changes))
    assert (done.code, done.out) == (2, "")
    assert named in done.said
    assert "api_key_env" not in done.err  # of a section with a url
    assert not any(path.is_file() and path.name != ".build.lock" for path in home.rglob("*"))


def test_advice_names_the_deployment_as_the_user_did(tmp_path, home):
    """Its engines are not built on demand: they are too large."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINTS / "demo-generator", checkpoint)
    with (checkpoint / "large").open("wb") as weights:
        weights.truncate(60_000_000)
    file = written(tmp_path, name="own", generator__checkpoint=str(checkpoint))
    linted = tts("lint", file)
    assert f"tts build-engines {file}" in "".join(linted.out.split("\n")).replace("  ", "")
    assert "build-engines own" not in linted.out
    for words in (("bench", file, "--limit", "1"), ("solve", "1 + 1", "-d", file)):
        done = tts(*words)
        assert done.code == 1
        assert f"Run: tts build-engines {file}\n" in done.err
        assert "Building" not in done.err
        assert not (home / "runs").exists()


def test_the_help_lists_the_strategies_there_are():
    assert all(name in tts("bench", "--help").said for name in STRATEGY_NAMES)
    assert ALL not in STRATEGIES


def test_the_strategies_block_of_a_deployment_is_checked_whatever_runs(tmp_path, home):
    file = written(tmp_path, strategies={"beam-search": {"beam_wdth": 2}})
    for words in (
        ("bench", file),
        ("bench", file, "--strategy", "all"),
        ("solve", "1", "-d", file),
    ):
        done = tts(*words)
        assert done.code == 2
        assert "strategies.beam-search.beam_wdth = 2: not a parameter" in done.err
    assert not home.exists()


@pytest.mark.parametrize(
    ("home", "named"),
    [
        ("/etc/passwd", "TTS_HOME is '/etc/passwd'"),
        ("/etc/passwd/x", "/etc/passwd is not a folder"),
        (TOO_LONG, "4,095 bytes"),
        ("~no-such-user", "'~no-such-user'"),
    ],
)
def test_a_home_that_cannot_be_is_named(monkeypatch, home, named):
    monkeypatch.setenv("TTS_HOME", home)
    done = tts("build-engines", "demo")
    assert done.code == 2
    assert named in done.err


def test_report_of_two_says_what_differs_the_differences_and_who_is_right(tmp_path):
    ours = write_run(tmp_path / "ours", log_of({"a": True, "b": True, "c": False}))
    log = log_of({"a": True, "b": False, "c": True}, tokens=15)
    theirs = write_run(tmp_path / "theirs", log, seed=7)
    done = tts("report", ours, theirs)
    assert done.code == 0
    order = [
        "What differs",
        "Accuracy against ours",
        "p (McNemar)",
        "Cost per problem against ours",
    ]
    assert sorted(order, key=done.said.index) == order
    for part in (
        "theirs 0 -",
        " 1 1 1 3 1 ",
        "generated tokens 200 200 200 5 15 3 ",
        "b ours ",
        "c theirs ",
    ):
        assert part in done.said
    other = write_run(tmp_path / "other", log_of({"x": None}))
    done = tts("report", ours, other)
    assert done.code == 1
    assert "no problem in common" in done.err
    assert tts("report", ours, ours).code == 2
    done = tts("report", ours, "--baseline", f"{theirs}=Large")
    assert done.code == 0
    assert "Accuracy against Large" in done.said
    assert tts("report", ours, "--baseline", f"{ours}=Large").code == 2
    assert tts("report", ours, "--baseline", tmp_path / "none").code == 2
    same = write_run(tmp_path / "same", log_of({"x": None}))
    assert "The runs were asked for the same." in tts("report", other, same).said


def test_doctor_answers_in_plain_words():
    out = tts("doctor").out
    for word in ("Python", "Triton server", "CPU engine", "precision bf16"):
        assert word in out
    assert out.splitlines()[-1].startswith("ready: tts solve demo ")
