"""What is refused, repaired or complete already before any engine is started."""

import json
import shutil
from functools import partial

import pytest
from msgspec.structs import replace
from tests.endpoints.scripted import ScriptedVerifier

from tts.build.errors import EndpointTimeout, RunDamaged, RunError
from tts.lab import campaign
from tts.lab.bench import single_run
from tts.lab.bench.group_run import resume_group, run_all
from tts.lab.bench.single_run import resume_bench, run_bench, run_solve
from tts.lab.observer import Observer
from tts.runs.compare import read_rows
from tts.runs.config import RunConfig
from tts.runs.events import ProblemSolved, encode
from tts.runs.folder import CONFIG, EVENTS, SUMMARY, read_json, write_json
from tts.runs.groups import expand_groups, read_group
from tts.runs.lock import locked
from tts.runs.log import ChecksumChain, read_events
from tts.runs.run import Run
from tts.runs.summary import read_summary
from tts.session import AsyncSession

WANTED = RunConfig(
    deployment_source="tiny",
    dataset="demo",
    limit=3,
    schedule="lockstep",
    parameters={"n": 4, "max_tokens": 16},
)
ALL = RunConfig(
    deployment_source="tiny",
    dataset="demo",
    limit=2,
    strategy="all",
    schedule="lockstep",
    parameters={"max_tokens": 16},
)


class Said(Observer):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def edit(file, **changes):
    write_json(file, {**read_json(file, ""), **changes})


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


def test_a_folder_that_another_process_works_in_is_refused(none, tmp_path):
    none()
    with locked(tmp_path / "run"), pytest.raises(RunError, match="in use by process"):
        run_bench(WANTED, tmp_path / "run", Observer())
    with locked(tmp_path / "run"), pytest.raises(RunError, match="in use by process"):
        run_solve("1 + 1", WANTED, tmp_path / "run", Observer(), lambda step: None)
    with locked(tmp_path / "group"), pytest.raises(RunError, match="in use by process"):
        run_all(ALL, tmp_path / "group", Observer())


def test_a_run_that_another_process_continues_is_refused_and_left_as_it_is(none, tmp_path):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    log = (folder / EVENTS).read_bytes()
    (folder / SUMMARY).unlink()
    none()
    with locked(folder), pytest.raises(RunError, match="in use by process"):
        resume_bench(folder, None, Observer())
    assert (folder / EVENTS).read_bytes() == log


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
def test_a_run_that_has_changed_is_refused_before_any_engine_is_started(
    none, tmp_path, changes, said
):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    (folder / SUMMARY).unlink()
    edit(folder / CONFIG, **changes)
    none()
    with pytest.raises(RunError, match=said):
        resume_bench(folder, None, Observer())


def test_an_empty_run_json_is_a_sentence(none, tmp_path):
    (tmp_path / CONFIG).write_text("{}")
    none()
    with pytest.raises(RunError, match=r"run\.json cannot be used: .*missing"):
        resume_bench(tmp_path, None, Observer())


def test_a_finished_run_starts_nothing_and_stays_as_it_is(none, tmp_path):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    none()
    said = Said()
    assert resume_bench(folder, None, said) == folder
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert said.lines == ["problems: every problem is solved already"]


def test_a_run_that_only_lacks_its_summary_gets_it_without_engines(none, tmp_path):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    summary = read_summary(folder)
    (folder / SUMMARY).unlink()
    none()
    resume_bench(folder, None, Observer())
    assert read_summary(folder) == summary


@pytest.mark.parametrize("damage", [lambda text: "{}", lambda text: text.replace("0.", "1.", 1)])
def test_a_summary_that_does_not_fit_is_made_from_the_log_again(none, tmp_path, damage):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    before = (folder / SUMMARY).read_bytes()
    (folder / SUMMARY).write_text(damage((folder / SUMMARY).read_text()))
    with pytest.raises(RunDamaged):
        Run.load(folder)
    none()
    said = Said()
    resume_bench(folder, None, said)
    assert (folder / SUMMARY).read_bytes() == before
    assert "The log is the source" in said.lines[0]


def test_a_run_whose_log_lost_problems_solves_them_again(tmp_path, engines):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    whole = digests(folder)
    with (folder / EVENTS).open("r+b") as log:
        log.truncate(len(log.read()) // 2)
    with pytest.raises(RunDamaged, match=r"summary\.json does not fit the run's log"):
        Run.load(folder)
    resume_bench(folder, None, Observer())
    assert digests(folder) == whole


def test_runs_of_a_group_in_each_others_place_are_refused_and_so_is_one_that_is_gone(
    engines, tmp_path
):
    group = run_all(ALL, tmp_path / "group", Observer())
    assert read_rows(group)[1] == []
    (group / "greedy").rename(group / "aside")
    with pytest.raises(RunDamaged, match="was complete, and now lacks the runs of greedy"):
        read_rows(group)
    shutil.copytree(group / "dvts", group / "greedy")
    for read in (read_rows, lambda folder: expand_groups([folder])):
        with pytest.raises(RunDamaged, match="its strategy is 'dvts' instead of 'greedy'"):
            read(group)


def test_a_comparison_of_named_strategies_has_their_runs_and_can_be_continued(engines, tmp_path):
    names = ("rebase", "greedy")
    group = run_all(ALL, tmp_path / "group", Observer(), names=names)
    members = [member.strategy for member in read_group(group)[1]]
    assert members == list(names)
    assert resume_group(group, None, Observer()) == group


def test_a_damaged_log_is_refused_by_its_line_and_repaired_to_the_same_trees(engines, tmp_path):
    none, scripted = engines
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    whole, summary = digests(folder), read_summary(folder)
    damage(folder, 20)
    damaged = (folder / EVENTS).read_bytes()
    none()
    with pytest.raises(RunError, match=r"events\.jsonl, line 21 is not JSON") as caught:
        resume_bench(folder, None, Observer())
    assert f"tts bench --resume {folder} --repair" in caught.value.hint
    scripted()
    said = Said()
    resume_bench(folder, None, said, repair=True)
    assert digests(folder) == whole
    assert read_summary(folder).tree_digest == summary.tree_digest
    assert (folder / "events.jsonl.damaged").read_bytes() == damaged
    assert said.lines[0].startswith("Repaired: ")


def test_a_solved_problem_that_is_none_of_the_runs_is_refused(none, tmp_path):
    folder = run_bench(WANTED, tmp_path / "run", Observer())
    stranger = next(e for e in read_events(folder) if isinstance(e, ProblemSolved))
    with (folder / EVENTS).open("ab") as log:
        event = encode(stranger).replace(stranger.problem.encode(), b"stranger")
        log.write(ChecksumChain.at_end(folder / EVENTS).seal(event))
    none()
    with pytest.raises(RunError, match="'stranger' is solved, but is no problem of this run"):
        resume_bench(folder, None, Observer())
    resume_bench(folder, None, Observer(), repair=True)
    assert "stranger" not in digests(folder)


def test_a_damaged_run_of_a_group_is_said_before_the_others_go_on(engines, tmp_path):
    none, scripted = engines
    folder = run_all(ALL, tmp_path / "group", Observer())
    members = [folder / member.folder for member in read_group(folder)[1]]
    before = [digests(member) for member in members]
    damage(members[-1], 5)
    for file in (SUMMARY, EVENTS, CONFIG):
        (members[0] / file).unlink()
    none()
    with pytest.raises(RunError, match=f"{members[-1].name}/events.jsonl, line 6"):
        resume_group(folder, None, Observer())
    assert not members[0].joinpath(CONFIG).exists()
    scripted()
    resume_group(folder, None, Observer(), repair=True)
    assert [digests(member) for member in members] == before


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        ([], "demo"),
        (["demo"], "demo"),
        (["llama-1b-prm-8b-h100-bf16"], "llama-1b-prm-8b-h100-bf16"),
        (["demo", "llama-1b-prm-8b-h100-bf16"], "demo"),
        (["own", "llama-1b-prm-8b-h100-bf16"], "llama-1b-prm-8b-h100-bf16"),
        (["own"], "demo"),  # its file is not known
    ],
)
def test_without_a_name_the_deployment_is_the_one_that_is_served(monkeypatch, served, chosen):
    monkeypatch.setattr(single_run, "served_deployments", lambda: served)
    assert single_run.default_deployment() == chosen


def test_a_question_that_is_not_solved_to_its_end_names_its_folder(
    tiny_deployment, none, tmp_path, monkeypatch
):
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
