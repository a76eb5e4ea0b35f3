"""What is refused, repaired or complete already before any engine is started."""

import json
import shutil
from functools import partial

import pytest
from msgspec.structs import replace
from tests.endpoints.scripted import ScriptedVerifier
from tests.lab.bench.runs import ALL, WANTED, Said, edit

from tts.base.errors import ConfigError, EndpointTimeout, RunDamaged, RunError
from tts.lab import campaign
from tts.lab.bench import single_run
from tts.lab.bench.group_run import resume_group, run_all
from tts.lab.bench.single_run import resume_bench, run_bench, run_solve
from tts.lab.observer import Observer
from tts.runs.compare import read_rows
from tts.runs.config import RunConfig, read_run_config
from tts.runs.events import ProblemSolved, encode
from tts.runs.folder import ANSWERS, CONFIG, EVENTS, SUMMARY, locked
from tts.runs.groups import read_group, runs_in
from tts.runs.log import ChecksumChain, read_events
from tts.runs.run import Run
from tts.runs.summary import read_summary
from tts.session import AsyncSession
from tts.session.functions import source_of


def damage(folder, line):
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    lines[line] = b"{" + b"\x00" * 9 + b"\n"
    (folder / EVENTS).write_bytes(b"".join(lines))


def digests(folder):
    found = {}
    for event in read_events(folder):
        if isinstance(event, ProblemSolved):
            assert event.problem not in found
            found[event.problem] = event.tree_digest
    return found


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def ran(none, tmp_path):
    """The folder of a finished run; from now on no engines may be started."""
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    none()
    return folder


def test_a_folder_that_another_process_works_in_is_refused_and_left_as_it_is(ran, tmp_path):
    new = tmp_path / "new"
    for begin in (
        lambda: run_bench(WANTED, new, Observer()),
        lambda: run_solve("1 + 1", WANTED, new, Observer(), lambda step: None),
        lambda: run_all(ALL, new, Observer()),
    ):
        with locked(new), pytest.raises(RunError, match="in use by process"):
            begin()
    (ran / SUMMARY).unlink()
    log = (ran / EVENTS).read_bytes()
    with locked(ran), pytest.raises(RunError, match="in use by process"):
        resume_bench(ran, None, Observer())
    assert (ran / EVENTS).read_bytes() == log


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deployment_digest": "another"}, "its deployment_digest was 'another'"),
        ({"vote": "best"}, "its vote was"),
        ({"seed": "zero"}, "seed"),
        ({"parameters": None}, "parameters"),
        ({"problem_ids": ["a"]}, "problem_ids"),
    ],
)
def test_a_run_that_has_changed_is_refused_before_any_engine_is_started(ran, changes, said):
    (ran / SUMMARY).unlink()
    edit(ran / CONFIG, **changes)
    with pytest.raises(RunError, match=said):
        resume_bench(ran, None, Observer())


def test_a_finished_run_starts_nothing_and_stays_as_it_is(ran):
    before, said = contents(ran), Said()
    assert resume_bench(ran, None, said) == ran
    assert contents(ran) == before
    assert said.lines == ["problems: every problem is solved already"]


@pytest.mark.parametrize(
    "damaged", [None, lambda text: "{}", lambda text: text.replace("0.", "1.", 1)]
)
def test_a_summary_that_is_gone_or_does_not_fit_is_made_from_the_log_again(ran, damaged):
    before, said = (ran / SUMMARY).read_bytes(), Said()
    if damaged is None:
        (ran / SUMMARY).unlink()
    else:
        (ran / SUMMARY).write_text(damaged(before.decode()))
        with pytest.raises(RunDamaged):
            Run.load(ran)
    resume_bench(ran, None, said)
    assert (ran / SUMMARY).read_bytes() == before
    assert ("The log is the source" in said.lines[0]) == bool(damaged)


def test_a_run_whose_log_lost_problems_solves_them_again(ran, engines):
    whole = digests(ran)
    with (ran / EVENTS).open("r+b") as log:
        log.truncate(len(log.read()) // 2)
    with pytest.raises(RunDamaged, match=r"summary\.json does not fit the run's log"):
        Run.load(ran)
    engines[1]()
    resume_bench(ran, None, Observer())
    assert digests(ran) == whole


def test_runs_of_a_group_in_each_others_place_are_refused_and_so_is_one_that_is_gone(
    engines, tmp_path
):
    group = run_all(ALL, tmp_path / "group", Observer())
    read_rows(group)
    (group / "greedy").rename(group / "aside")
    with pytest.raises(RunDamaged, match="was complete, and now lacks the runs of greedy"):
        read_rows(group)
    shutil.copytree(group / "dvts", group / "greedy")
    for read in (read_rows, runs_in):
        with pytest.raises(RunDamaged, match="its strategy is 'dvts' instead of 'greedy'"):
            read(group)


def test_a_comparison_of_named_strategies_has_their_runs_and_can_be_continued(engines, tmp_path):
    names = ["rebase", "greedy"]
    group = run_all(ALL, tmp_path / "group", Observer(), names=names)
    assert [member.strategy for member in read_group(group)[1]] == names
    assert resume_group(group, None, Observer()) == group


OWN = """
from tts.search import SampleSearchConfig
from tts.strategies.strategy import Strategy

SHORT = Strategy("my short one", "", type("Short", (SampleSearchConfig,), {}), "majority")
function = lambda problem, seed: None
THREE = 3
"""


def test_a_comparison_has_strategies_of_python_files_and_goes_on_if_they_are_named_again(
    engines, tmp_path
):
    (tmp_path / "own.py").write_text(OWN)
    texts = [f"{tmp_path}/own.py:{name}" for name in ("SHORT", "function", "THREE")]
    short, *others = map(source_of, texts)
    group = run_all(
        replace(ALL, sources={"strategy": short}),
        tmp_path / "group",
        Observer(),
        names=["greedy", texts[0]],
    )
    assert [member.folder for member in read_group(group)[1]] == ["greedy", "my-short-one"]
    assert [row.strategy for row in read_rows(group)] == ["greedy", "my short one"]
    sources = [set(read_run_config(run).sources) for run, _ in runs_in(group)]
    assert sources == [set(), {"strategy"}]
    (group / "my-short-one" / SUMMARY).unlink()
    with pytest.raises(RunError, match=r"names Python code for its strategy, .*own\.py") as caught:
        resume_group(group, None, Observer())
    assert f"--strategy {texts[0]}" in caught.value.hint
    assert resume_group(group, None, Observer(), sources={"strategy": short}) == group
    for other, what in zip(others, ("is a function, whose n is not", "is 3, and no"), strict=True):
        with pytest.raises(ConfigError, match=rf"{other.name} of .*own\.py {what}"):
            run_all(
                replace(ALL, sources={"strategy": short, "strategy-2": other}),
                tmp_path / "two",
                Observer(),
                names=[texts[0], f"{other.file}:{other.name}"],
            )


def test_a_damaged_log_is_refused_by_its_line_and_repaired_to_the_same_trees(engines, ran):
    whole, summary = digests(ran), read_summary(ran)
    damage(ran, 20)
    damaged = (ran / EVENTS).read_bytes()
    with pytest.raises(RunError, match=r"events\.jsonl, line 21 is not JSON") as caught:
        resume_bench(ran, None, Observer())
    assert f"tts bench --resume {ran} --repair" in caught.value.hint
    engines[1]()
    said = Said()
    resume_bench(ran, None, said, repair=True)
    assert digests(ran) == whole
    assert read_summary(ran).tree_digest == summary.tree_digest
    assert (ran / "events.jsonl.damaged").read_bytes() == damaged
    assert said.lines[0].startswith("Repaired: ")


def test_a_solved_problem_that_is_none_of_the_runs_is_refused(ran):
    stranger = next(e for e in read_events(ran) if isinstance(e, ProblemSolved))
    with (ran / EVENTS).open("ab") as log:
        event = encode(stranger).replace(stranger.problem.encode(), b"stranger")
        log.write(ChecksumChain.at_end(ran / EVENTS).seal(event))
    with pytest.raises(RunError, match="'stranger' is solved, but is no problem of this run"):
        resume_bench(ran, None, Observer())
    resume_bench(ran, None, Observer(), repair=True)
    assert "stranger" not in digests(ran)


def test_a_damaged_run_of_a_group_is_said_before_the_others_go_on(engines, tmp_path):
    none, scripted = engines
    folder = run_all(ALL, tmp_path / "group", Observer())
    members = [folder / member.folder for member in read_group(folder)[1]]
    before = [digests(member) for member in members]
    damage(members[-1], 5)
    for file in (SUMMARY, EVENTS, CONFIG, *ANSWERS.values()):
        (members[0] / file).unlink()
    none()
    with pytest.raises(RunError, match=f"{members[-1].name}/events.jsonl, line 6") as caught:
        resume_group(folder, None, Observer())
    assert "Continue with" not in caught.value.hint
    assert not members[0].joinpath(CONFIG).exists()
    scripted()
    resume_group(folder, None, Observer(), repair=True)
    assert [digests(member) for member in members] == before


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        ([], "demo"),
        (["llama-1b-prm-8b-h100-bf16"], "llama-1b-prm-8b-h100-bf16"),
        (["demo", "llama-1b-prm-8b-h100-bf16"], "demo"),
        (["own", "llama-1b-prm-8b-h100-bf16"], "llama-1b-prm-8b-h100-bf16"),
        (["own"], "demo"),  # its file is not known
    ],
)
def test_without_a_name_the_deployment_is_the_one_that_is_served(monkeypatch, served, chosen):
    monkeypatch.setattr(single_run, "served_deployments", lambda: served)
    assert single_run.default_deployment() == chosen


def test_a_question_that_is_not_solved_to_its_end_names_its_folder(none, tmp_path, monkeypatch):
    class Failing:
        async def generate(self, call):
            raise EndpointTimeout("No answer.")

    session = partial(AsyncSession, generator=Failing(), verifier=ScriptedVerifier())
    monkeypatch.setattr(campaign, "AsyncSession", session)
    folder = tmp_path / "run"
    with pytest.raises(EndpointTimeout) as caught:
        run_solve("1 + 1", WANTED, folder, Observer(), lambda step: None)
    assert f"saved in {folder}" in caught.value.hint
    assert f"tts bench --resume {folder}" in caught.value.hint


def write_sums(file, answer):
    rows = ({"problem": f"{n} + 1", "answer": str(n + answer)} for n in range(4))
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_dataset_that_has_changed_is_refused_by_name(engines, tmp_path):
    dataset, folder = tmp_path / "sums.jsonl", tmp_path / "run"
    write_sums(dataset, 1)
    run_bench(replace(WANTED, dataset=str(dataset)), folder, Observer())
    (folder / SUMMARY).unlink()
    write_sums(dataset, 2)
    with pytest.raises(RunError, match=rf"questions or answers of {dataset} are not") as caught:
        resume_bench(folder, None, Observer())
    assert "Bring them back" in caught.value.hint
    write_sums(dataset, 1)
    resume_bench(folder, None, Observer())


def test_problems_that_the_demo_pair_does_not_know_are_a_warning_beforehand(tmp_path, monkeypatch):
    monkeypatch.setattr(single_run, "require_engines", lambda *arguments: None)
    file, observer = tmp_path / "three.jsonl", Said()
    questions = ("What is 2 + 2?", "Compute 12 + 30 - 5.", "Find x.")
    rows = (json.dumps({"problem": each, "answer": "1"}) for each in questions)
    file.write_text("\n".join(rows))
    single_run.prepare(RunConfig(deployment_source="demo", dataset=str(file)), observer)
    assert observer.lines[-1].startswith("2 of 3 problems are not of the demo's kind. The demo ")
