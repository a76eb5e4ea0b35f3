"""Shards of a run, each by itself, and the one run that they are merged into."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.runs.logs import log_bytes

from tts.build.errors import DatasetError, RunDamaged, RunError
from tts.datasets.load import load_dataset
from tts.datasets.options import DatasetOptions, Shard, interleaved
from tts.lab.bench.sharded_run import merge_runs
from tts.lab.bench.single_run import resume_bench, run_bench
from tts.lab.observer import Observer
from tts.runs.checks import write_summary
from tts.runs.config import RunConfig, read_run_config
from tts.runs.events import Finished, ProblemSolved, Resources, SessionBegan
from tts.runs.folder import SUMMARY, read_config
from tts.runs.log import read_events
from tts.runs.run import Run
from tts.runs.summary import read_summary

WANTED = RunConfig(
    deployment_source="tiny", dataset="demo", limit=7, parameters={"n": 4, "max_tokens": 16}
)


def shard_of(text, **changes):
    return replace(WANTED, shard=text, **changes)


@pytest.fixture
def shards(engines, tmp_path):
    """Folders of the three shards of a run."""
    return [
        run_bench(shard_of(f"{number}/3"), tmp_path / f"s{number}", Observer())
        for number in (1, 2, 3)
    ]


def test_shards_may_come_from_different_commands(engines, tmp_path):
    for same in (False, True):
        folders = [
            run_bench(
                shard_of(f"{number}/2", command=["tts", "bench", "" if same else str(number)]),
                tmp_path / f"{same}-{number}",
                Observer(),
            )
            for number in (1, 2)
        ]
        merged = read_config(merge_runs(folders, tmp_path / f"{same}-merged"))
        assert merged.get("command") == (["tts", "bench", ""] if same else None)


@given(st.lists(st.integers(), max_size=40), st.integers(1, 9))
def test_shards_are_a_partition_in_order_and_their_sizes_differ_by_one_at_most(items, count):
    parts = [Shard(number, count).of(items) for number in range(1, count + 1)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert interleaved(parts) == items


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=5))
def test_parts_that_are_not_shards_of_one_list_do_not_fit(parts):
    whole = interleaved(parts)
    if whole is not None:
        assert [Shard(n, len(parts)).of(whole) for n in range(1, len(parts) + 1)] == parts


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/3"])
def test_what_names_no_shard_is_refused(text):
    with pytest.raises(DatasetError, match=r"shard|Shard"):
        Shard.parse(text)


def test_a_shard_of_too_few_problems_is_refused():
    with pytest.raises(DatasetError, match="Shard 4/4 of 3 problems is empty"):
        load_dataset("demo", limit=3, options=DatasetOptions(shard=Shard(4, 4)))


def test_the_merged_run_is_the_whole_run(shards, tmp_path):
    whole = run_bench(WANTED, tmp_path / "whole", Observer())
    merged = merge_runs([shards[2], shards[0], shards[1]], tmp_path / "merged")
    assert read_config(merged) == read_config(whole)
    one, other = read_summary(whole), read_summary(merged)
    for name in ("tree_digest", "problems", "accuracy", "accuracy_by_level", "pass_at_n", "n"):
        assert getattr(one, name) == getattr(other, name)
    assert one.generator_calls <= other.generator_calls + 100
    assert set(other.servers) == {"shard 1/3", "shard 2/3", "shard 3/3"}
    assert {p.id: p.answer for p in Run.load(whole).problems} == {
        p.id: p.answer for p in Run.load(merged).problems
    }


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
    merged = merge_runs(shards, tmp_path / "merged")
    last = [
        [event for event in read_events(shard) if isinstance(event, Resources)][-1].cpu_s
        for shard in shards
    ]
    used = [event.cpu_s for event in read_events(merged) if isinstance(event, Resources)]
    assert used[-1] == pytest.approx(sum(last), abs=1e-5)
    assert used == sorted(used)


def test_a_merged_run_is_finished_and_a_resumed_shard_stays_one(shards, engines, tmp_path):
    merged = merge_runs(shards, tmp_path / "merged")
    before = (merged / SUMMARY).read_bytes()
    engines[0]()  # no engine may be started
    resume_bench(merged, None, Observer())
    assert (merged / SUMMARY).read_bytes() == before
    resume_bench(shards[0], None, Observer())
    assert read_run_config(shards[0]).shard == "1/3"


def test_missing_doubled_and_other_shards_are_refused(shards, engines, tmp_path):
    other = run_bench(shard_of("2/4"), tmp_path / "other", Observer())
    for folders, there in (
        ([shards[0], shards[2]], "1/3, 3/3"),
        ([*shards, shards[0]], "1/3, 1/3, 2/3, 3/3"),
        ([shards[0], other], "1/3, 2/4"),
    ):
        with pytest.raises(RunError, match=f"is 1/3, 2/3, 3/3; these are {there}"):
            merge_runs(folders, tmp_path / "merged")
    assert not (tmp_path / "merged" / "run.json").exists()


def test_shards_of_other_runs_are_refused_by_what_differs(shards, engines, tmp_path):
    def other(text, **changes):
        return run_bench(shard_of(text, **changes), tmp_path / "other", Observer())

    with pytest.raises(RunError, match="different runs: their seed is 0 and 1"):
        merge_runs([*shards[:2], other("3/3", seed=1)], tmp_path / "merged")


def test_a_whole_run_and_an_unfinished_shard_are_refused(shards, engines, tmp_path):
    whole = run_bench(WANTED, tmp_path / "whole", Observer())
    with pytest.raises(RunError, match="whole is no shard of a run"):
        merge_runs([whole, *shards], tmp_path / "merged")
    (shards[1] / SUMMARY).unlink()
    with pytest.raises(RunError, match=r"s2 \(shard 2/3\) has not finished") as refused:
        merge_runs(shards, tmp_path / "merged")
    assert f"--resume {shards[1]}" in refused.value.hint


def test_a_folder_that_holds_a_run_is_not_written_over(shards, tmp_path):
    with pytest.raises(RunError, match="already holds a run"):
        merge_runs(shards, shards[0])


def test_shards_that_were_asked_otherwise_are_refused(engines, tmp_path):
    dataset, folders = tmp_path / "sums.jsonl", []
    for number in (1, 2):
        rows = ({"problem": f"{n} + 1", "answer": str(n + number)} for n in range(4))
        dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        folder = tmp_path / f"s{number}"
        folders.append(run_bench(shard_of(f"{number}/2", dataset=str(dataset)), folder, Observer()))
    digests = [read_config(folder)["problems_digest"] for folder in folders]
    assert digests[0] != digests[1]
    with pytest.raises(RunError, match=rf"questions or answers of {dataset} were changed"):
        merge_runs(folders, tmp_path / "merged")


def test_shards_and_the_whole_run_have_one_digest_of_what_is_asked(shards, tmp_path):
    whole = run_bench(WANTED, tmp_path / "whole", Observer())
    merged = merge_runs(shards, tmp_path / "merged")
    digests = {read_config(folder)["problems_digest"] for folder in (*shards, whole, merged)}
    assert len(digests) == 1
