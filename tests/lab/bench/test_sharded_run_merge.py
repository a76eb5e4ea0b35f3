"""Shards of a run, each by itself, and the one run that they are merged into."""

import json

import pytest
from msgspec.structs import replace
from tests.lab.bench.runs import WANTED as OF_THREE
from tests.runs.logs import log_bytes

from tts.base.errors import RunDamaged, RunError
from tts.lab.bench.sharded_run import merge_runs
from tts.lab.bench.single_run import resume_bench, run_bench
from tts.lab.observer import Observer
from tts.runs.checks import write_summary
from tts.runs.config import read_run_config
from tts.runs.events import Finished, ProblemSolved, Resources, SessionBegan
from tts.runs.folder import SUMMARY, read_config
from tts.runs.log import read_events
from tts.runs.run import Run
from tts.runs.summary import read_summary

WANTED = replace(OF_THREE, limit=7, schedule="decoupled")


@pytest.fixture
def solve(engines, tmp_path):
    """Solves a part, or else all of it, in a folder of this name."""

    def solved(name, shard=None, **changes):
        return run_bench(replace(WANTED, shard=shard, **changes), tmp_path / name, Observer())

    return solved


@pytest.fixture
def shards(solve):
    """Folders of the three shards of a run."""
    return [solve(f"s{number}", f"{number}/3") for number in (1, 2, 3)]


@pytest.mark.parametrize("second", ["1", "2"])
def test_shards_may_come_from_different_commands(solve, tmp_path, second):
    one = solve("one", "1/2", command=["tts", "bench", "1"])
    two = solve("two", "2/2", command=["tts", "bench", second])
    merged = read_config(merge_runs([one, two], tmp_path / "merged"))
    assert merged.get("command") == (["tts", "bench", "1"] if second == "1" else None)


def test_the_merged_run_is_the_whole_run(shards, solve, tmp_path):
    whole = solve("whole")
    merged = merge_runs([shards[2], shards[0], shards[1]], tmp_path / "merged")
    assert read_config(merged) == read_config(whole)
    digests = {read_config(folder)["problems_digest"] for folder in (*shards, whole, merged)}
    assert len(digests) == 1
    one, other = read_summary(whole), read_summary(merged)
    for name in ("tree_digest", "problems", "accuracy", "accuracy_by_level", "pass_at_n", "n"):
        assert getattr(one, name) == getattr(other, name)
    assert one.generator_calls <= other.generator_calls + 100
    assert set(other.servers) == {"shard 1/3", "shard 2/3", "shard 3/3"}
    answers = [{p.id: p.answer for p in Run.load(folder).problems} for folder in (whole, merged)]
    assert answers[0] == answers[1]


def test_events_keep_their_wall_clock_times_on_one_clock(shards, tmp_path):
    for shard, second in zip(shards, ("00", "30", "00"), strict=True):
        summary, events = read_summary(shard), list(read_events(shard))
        events[0] = replace(events[0], time=f"2026-01-01T10:00:{second}+00:00")
        (shard / "events.jsonl").write_bytes(log_bytes(*events))
        write_summary(shard, summary.to_json())
    events = list(read_events(merge_runs(shards, tmp_path / "merged")))
    assert [type(event) for event in events].count(SessionBegan) == 1
    assert isinstance(events[0], SessionBegan)
    assert isinstance(events[-1], Finished)
    late = {event.problem for event in events if isinstance(event, ProblemSolved) and event.t >= 30}
    assert late == set(read_config(shards[1])["problem_ids"])
    first_late = next(place for place, event in enumerate(events) if event.t >= 30)
    assert all(event.t >= 30 for event in events[first_late:])
    assert 30 <= read_summary(tmp_path / "merged").wall_s < 60


def test_a_shard_that_lost_problems_is_refused(shards, tmp_path):
    summary, events = read_summary(shards[0]), list(read_events(shards[0]))
    lost = sorted(read_config(shards[0])["problem_ids"])[:2]
    kept = [event for event in events if getattr(event, "problem", None) not in lost]
    (shards[0] / "events.jsonl").write_bytes(log_bytes(*kept))
    with pytest.raises(RunDamaged, match=r"does not fit the run's log"):
        merge_runs(shards, tmp_path / "merged")
    write_summary(shards[0], {**summary.to_json(), "problems": summary.problems - 2})
    with pytest.raises(RunDamaged, match=r"lacks the solution of 2 of its problems"):
        merge_runs(shards, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_what_processes_have_used_adds_up(shards, tmp_path):
    def used(folder):
        return [event.cpu_s for event in read_events(folder) if isinstance(event, Resources)]

    merged = used(merge_runs(shards, tmp_path / "merged"))
    assert merged[-1] == pytest.approx(sum(used(shard)[-1] for shard in shards), abs=1e-5)
    assert merged == sorted(merged)


def test_a_merged_run_is_finished_and_a_resumed_shard_stays_one(shards, none, tmp_path):
    merged = merge_runs(shards, tmp_path / "merged")
    before = (merged / SUMMARY).read_bytes()
    none()
    resume_bench(merged, None, Observer())
    assert (merged / SUMMARY).read_bytes() == before
    resume_bench(shards[0], None, Observer())
    assert read_run_config(shards[0]).shard == "1/3"
    with pytest.raises(RunError, match="already holds a run"):
        merge_runs(shards, shards[0])


def test_shards_that_are_not_those_of_one_run_are_refused(shards, solve, tmp_path):
    other, turned, whole = solve("other", "2/4"), solve("turned", "3/3", seed=1), solve("whole")
    (shards[1] / SUMMARY).rename(tmp_path / "aside")
    with pytest.raises(RunError, match=r"s2 \(shard 2/3\) has not finished") as unfinished:
        merge_runs(shards, tmp_path / "merged")
    assert f"--resume {shards[1]}" in unfinished.value.hint
    (tmp_path / "aside").rename(shards[1] / SUMMARY)
    for folders, said in (
        ([shards[0], shards[2]], "is 1/3, 2/3, 3/3; these are 1/3, 3/3"),
        ([*shards, shards[0]], "is 1/3, 2/3, 3/3; these are 1/3, 1/3, 2/3, 3/3"),
        ([shards[0], other], "is 1/3, 2/3, 3/3; these are 1/3, 2/4"),
        ([*shards[:2], turned], "different runs: their seed is 0 and 1"),
        ([whole, *shards], "whole is no shard of a run"),
    ):
        with pytest.raises(RunError, match=said):
            merge_runs(folders, tmp_path / "merged")
    assert not (tmp_path / "merged" / "run.json").exists()


def test_shards_that_were_asked_otherwise_are_refused(solve, tmp_path):
    dataset, folders = tmp_path / "sums.jsonl", []
    for number in (1, 2):
        rows = ({"problem": f"{n} + 1", "answer": str(n + number)} for n in range(4))
        dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        folders.append(solve(f"s{number}", f"{number}/2", dataset=str(dataset)))
    with pytest.raises(RunError, match=rf"questions or answers of {dataset} were changed"):
        merge_runs(folders, tmp_path / "merged")
