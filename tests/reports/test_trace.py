"""The trace parsed back with Perfetto's own protobuf classes: it says what the log says."""

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
from tests.runs.logs import (
    LOGS,
    PROBLEMS,
    SESSION,
    TIMES,
    cut,
    expansion,
    idle,
    scoring,
    solved,
    started,
)

from tts.build.errors import RunError
from tts.reports.trace import TRACE, write_trace
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.events import Cancelled, encode
from tts.runs.folder import EVENTS, create_run
from tts.runs.requests import requests_of

KINDS = proto.TrackEvent


class Parsed:
    """What a trace holds: tracks by name, the slices of each, instants, counters."""

    def __init__(self, file: Path):
        trace = proto.Trace()
        trace.ParseFromString(file.read_bytes())
        self.names, self.processes, self.parents = {}, {}, {}
        self.slices, self.instants, self.counters = defaultdict(list), [], defaultdict(list)
        self.flows, self.ending_flows = defaultdict(list), defaultdict(list)
        interned, events = {}, []
        for packet in trace.packet:
            interned |= {
                name.iid: name.name for name in packet.interned_data.debug_annotation_names
            }
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                if track.HasField("process"):
                    self.processes[track.uuid] = track.process.process_name
                else:
                    self.names[track.uuid] = track.name
                    self.parents[track.uuid] = track.parent_uuid
            elif packet.HasField("track_event"):
                events.append((packet.timestamp, packet.track_event))
        began = {}
        for ns, event in sorted(events, key=lambda each: each[0]):  # stable, as Perfetto's sorter
            track, t = event.track_uuid, ns / 1e9
            said = {interned[a.name_iid]: value(a) for a in event.debug_annotations}
            if event.type == KINDS.TYPE_SLICE_BEGIN:
                assert track not in began, "no slice is within another"
                began[track] = (t, event.name, said)
                for flow in event.flow_ids:
                    self.flows[flow].append((t, said))
                for flow in event.terminating_flow_ids:
                    self.ending_flows[flow].append((t, said))
            elif event.type == KINDS.TYPE_SLICE_END:
                since, name, what = began.pop(track)
                self.slices[self.name(track)].append((since, t, name, what))
            elif event.type == KINDS.TYPE_INSTANT:
                self.instants.append((t, event.name, said))
            else:
                number = event.counter_value or event.double_counter_value
                self.counters[self.name(track)].append((t, number))
        assert not began, "every slice ends"

    def name(self, track):
        return f"{self.processes[self.parents[track]]}/{self.names[track]}"

    def slots(self, engine):
        return {
            name: slices
            for name, slices in self.slices.items()
            if name.startswith(f"{engine}/slot ")
        }


def value(annotation):
    return getattr(annotation, annotation.WhichOneof("value"))


def trace_of(folder, *events, config=None):
    create_run(folder, config or {"vote": "best"})
    (folder / EVENTS).write_bytes(b"".join(encode(event) + b"\n" for event in events))
    file, counts = write_trace(folder)
    assert file == folder / TRACE
    return Parsed(file), counts


def total(slots):
    return sum(map(len, slots.values()))


PROBLEM_EVENTS = st.one_of(st.builds(started, PROBLEMS, TIMES), st.builds(solved, PROBLEMS, TIMES))


@settings(deadline=None, max_examples=40)
@given(log=LOGS, problems=st.lists(PROBLEM_EVENTS, max_size=6), data=st.data())
def test_slices_nest_flows_have_two_ends_and_counts_are_the_logs(
    tmp_path_factory, log, problems, data
):
    places = data.draw(st.permutations([*log, *[None] * len(problems)]))
    in_time = iter(sorted(problems, key=lambda event: event.t))  # as a log has them
    events = [SESSION, *(event or next(in_time) for event in places)]
    parsed, counts = trace_of(tmp_path_factory.mktemp("run") / "run", *events)
    requests = list(requests_of(events))
    assert counts.requests == len(requests)
    for engine in ("generator", "verifier"):
        ours = [request for request in requests if request.engine == engine]
        slices = [each for slot in parsed.slots(engine).values() for each in slot]
        assert Counter((round(r.sent, 6), round(r.done, 6)) for r in ours) == Counter(
            (round(since, 6), round(until, 6)) for since, until, _, _ in slices
        )
        loads = [number for _, number in parsed.counters[f"{engine}/in flight"]]
        assert all(abs(after - before) == 1 for before, after in pairwise([0, *loads]))
        assert not loads or loads[-1] == 0
    assert sum(name.startswith("cancel ") for _, name, _ in parsed.instants) == sum(
        isinstance(event, Cancelled) for event in events
    )
    assert sum(name.startswith("send ") for _, name, _ in parsed.instants) == len(requests)
    assert parsed.flows.keys() == parsed.ending_flows.keys() == set(range(1, counts.flows + 1))
    for flow, ((score_began, score),) in parsed.flows.items():
        ((sent, grown),) = parsed.ending_flows[flow]
        assert score_began <= sent
        assert score["problem"] == grown["problem"]
        assert grown["node"].rpartition(".")[0] == score["node"]


def test_a_flow_leads_from_a_score_to_each_expansion_that_waited_for_it(tmp_path):
    parsed, counts = trace_of(
        tmp_path / "run",
        SESSION,
        expansion((0,), 0.0, 1.0, tokens=4),
        scoring((0,), 1.0, 2.0),
        expansion((0, 1), 1.5, 2.5, "speculative", tokens=4),  # did not wait
        expansion((0, 0), 2.0, 3.0, tokens=4),
        expansion((0, 2), 2.25, 3.0, tokens=4),
    )
    assert counts.flows == 2
    assert {grown["node"] for ((_, grown),) in parsed.ending_flows.values()} == {"0.0", "0.2"}
    ((_, _, name, said),) = parsed.slots("verifier")["verifier/slot 0"]
    assert (name, said["score"]) == ("0", 0.5)


def test_a_step_that_is_scored_again_in_another_session_has_both_requests(tmp_path):
    step = expansion((0,), 0.0, 1.0, tokens=4), scoring((0,), 1.0, 2.0)
    parsed, counts = trace_of(tmp_path / "run", SESSION, *step, SESSION, *step)
    assert counts.requests == 4
    assert total(parsed.slots("verifier")) == total(parsed.slots("generator")) == 2


def test_as_many_slots_as_requests_at_a_time(tmp_path):
    parsed, _ = trace_of(
        tmp_path / "run",
        SESSION,
        *(expansion((n,), n * 1.0, n * 1.0 + 2.5, tokens=1) for n in range(6)),
    )
    slots = parsed.slots("generator")
    assert sorted(slots) == [f"generator/slot {n}" for n in range(3)]
    assert [len(slots[name]) for name in sorted(slots)] == [2, 2, 2]
    assert max(number for _, number in parsed.counters["generator/in flight"]) == 3


def test_why_work_was_cancelled_or_held_is_said(tmp_path):
    parsed, _ = trace_of(
        tmp_path / "run",
        SESSION,
        cut((0,), 0.0, 1.0, why="slot"),
        idle("verifier", 0.0, 2.0, "budget"),
    )
    (_, name, said) = next(each for each in parsed.instants if each[1].startswith("cancel"))
    assert (name, said["cancelled"], said["node"]) == ("cancel generator", "slot", "0")
    assert [each[:3] for each in parsed.slices["verifier/idle"]] == [(0.0, 2.0, "budget")]
    ((_, _, name, _),) = parsed.slots("generator")["generator/slot 0"]
    assert name == "speculative 0 (cancelled)"


def test_problems_lie_in_lanes_with_their_answers_until_their_session_ends(tmp_path):
    parsed, _ = trace_of(
        tmp_path / "run",
        SESSION,
        started("a", 0.0, "1 + 1?"),
        started("b", 1.0),
        solved("a", 2.0, correct={"best": True, "weighted": False, "majority": False}),
        SESSION,
        started("b", 1.0),
        solved("b", 2.0),
    )
    lanes = {name: slices for name, slices in parsed.slices.items() if "problems" in name}
    slices = sorted(
        (since, until, name) for each in lanes.values() for since, until, name, _ in each
    )
    assert slices == [(0.0, 2.0, "a"), (1.0, 2.0, "b"), (3.0, 4.0, "b")]
    ((*_, said),) = [each for each in lanes["orchestrator/problems 0"] if each[2] == "a"]
    assert said == {"problem": "a", "question": "1 + 1?", "answer": "1", "correct": "yes"}
    assert [number for _, number in parsed.counters["orchestrator/running"]] == [1, 2, 1, 0, 1, 0]


def test_what_the_engines_told_of_their_steps_is_counted(tmp_path):
    folder = tmp_path / "run"
    create_run(folder, {"vote": "best"})
    (folder / EVENTS).write_bytes(encode(SESSION) + b"\n")
    log = StepLog(folder, "generator", StepSession(session=SESSION.time, sampled=False))
    for t, tokens, blocks in ((0.02, 8, 3), (0.04, 8, 5), (0.55, 4, 5)):
        log.write(
            [
                EngineStep(
                    t=t,
                    seconds=0.01,
                    scheduled=8,
                    queued=0,
                    context_tokens=0,
                    generated_tokens=tokens,
                    blocks_used=blocks,
                )
            ]
        )
    log.close()
    file, counts = write_trace(folder, tmp_path / "elsewhere" / "of.pftrace")
    counters = Parsed(file).counters
    assert counts.steps == 3
    assert counters["generator/KV blocks in use"] == [(0.02, 3), (0.04, 5)]
    assert counters["generator/batch"] == [(0.02, 8)]
    rates = [(round(t, 6), number) for t, number in counters["generator/tokens/s"]]
    assert rates == [(0.0, 160), (0.1, 0), (0.5, 40), (0.6, 0)]
    assert "verifier/batch" not in counters


def test_the_clock_of_a_trace_is_that_of_its_first_session(tmp_path):
    create_run(tmp_path, {})
    (tmp_path / EVENTS).write_bytes(encode(SESSION) + b"\n")
    trace = proto.Trace()
    trace.ParseFromString(write_trace(tmp_path)[0].read_bytes())
    (snapshot,) = [p.clock_snapshot for p in trace.packet if p.HasField("clock_snapshot")]
    clocks = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    assert clocks[proto.BUILTIN_CLOCK_BOOTTIME] == 0
    assert clocks[proto.BUILTIN_CLOCK_REALTIME] == 1767225600 * 10**9


def test_a_run_that_has_not_begun_has_no_trace(tmp_path):
    create_run(tmp_path, {})
    with pytest.raises(RunError, match="has not begun"):
        write_trace(tmp_path)
    assert not list(tmp_path.glob("*pftrace*"))
    assert not list(tmp_path.glob(".*part"))


def test_a_trace_that_cannot_be_written_says_so(tmp_path):
    trace_of(tmp_path / "run", SESSION)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_trace(tmp_path / "run", tmp_path / "file" / "trace")
