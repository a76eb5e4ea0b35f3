"""The trace read back: it says what the log says, in the terms of Chrome's trace event format."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.runs.logs import (
    LOGS,
    PROBLEMS,
    SESSION,
    TIMES,
    cut,
    expansion,
    idle,
    log_bytes,
    scoring,
    solved,
    started,
)

from tts.base.errors import RunError
from tts.reports.trace import TRACE, write_trace
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.events import Cancelled
from tts.runs.folder import CONFIG, EVENTS, create_run
from tts.runs.requests import requests_of


class Parsed:
    """What a trace holds: tracks by name, the slices of each, instants, counters, flows."""

    def __init__(self, file: Path):
        trace = json.loads(file.read_text())
        self.other = trace["otherData"]
        self.processes, self.threads = {}, {}
        self.slices, self.instants, self.counters = defaultdict(list), [], defaultdict(list)
        self.flows, self.ending_flows = {}, {}
        events = trace["traceEvents"]
        for event in events:
            if event["ph"] == "M":
                ids = [self.processes, self.threads][event["name"] == "thread_name"]
                key = event["pid"] if ids is self.processes else (event["pid"], event["tid"])
                assert key not in ids, "a number is one thing's"
                ids[key] = event["args"]["name"]
        at = defaultdict(list)
        for event in events:
            t, said = event["ts"] / 1e6, event.get("args")
            match event["ph"]:
                case "X":
                    until = (event["ts"] + event["dur"]) / 1e6
                    self.slices[self.name(event)].append((t, until, event["name"], said))
                    at[self.name(event), event["ts"]].append(said)
                case "i":
                    self.instants.append((t, event["name"], said))
                case "C":
                    name = f"{self.processes[event['pid']]}/{event['name']}"
                    self.counters[name].append((event["ts"], said["value"]))
                case "s" | "f" as kind:
                    flows = self.flows if kind == "s" else self.ending_flows
                    assert event["id"] not in flows
                    assert kind == "s" or event["bp"] == "e"
                    # those that begin there: the slices that it is bound to
                    flows[event["id"]] = (t, at[self.name(event), event["ts"]])
        for track in self.slices.values():
            track.sort(key=lambda each: each[:2])
            assert all(a[1] <= b[0] for a, b in pairwise(track)), "no slice is within another"
        for name, counted in self.counters.items():
            counted.sort(key=lambda each: each[0])  # stable, as viewers sort
            self.counters[name] = [(t / 1e6, value) for t, value in counted]

    def name(self, event):
        return f"{self.processes[event['pid']]}/{self.threads[event['pid'], event['tid']]}"

    def slots(self, engine):
        return {
            name: slices
            for name, slices in self.slices.items()
            if name.startswith(f"{engine}/slot ")
        }


def trace_of(folder, *events, config=None):
    create_run(folder, config or {"vote": "best"})
    (folder / EVENTS).write_bytes(log_bytes(*events))
    file, counts = write_trace(folder)
    assert file == folder / TRACE
    return Parsed(file), counts


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
    for flow, (score_began, scores) in parsed.flows.items():
        sent, grown = parsed.ending_flows[flow]
        assert score_began <= sent
        assert any(
            (new["problem"], new["node"].rpartition(".")[0]) == (score["problem"], score["node"])
            for score in scores
            for new in grown
        )


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
    assert {grown["node"] for _, (grown,) in parsed.ending_flows.values()} == {"0.0", "0.2"}
    assert {score["score"] for _, (score,) in parsed.flows.values()} == {0.5}
    ((_, _, name, said),) = parsed.slots("verifier")["verifier/slot 0"]
    assert (name, said["score"]) == ("0", 0.5)


def test_why_work_was_cancelled_or_held_is_said(tmp_path):
    parsed, _ = trace_of(
        tmp_path / "run",
        SESSION,
        cut((0,), 0.0, 1.0, why="slot"),
        *(expansion((n,), n * 1.0, n * 1.0 + 2.5, tokens=1) for n in range(1, 6)),
        idle("verifier", 0.0, 2.0, "budget"),
    )
    assert parsed.other == {"began": SESSION.time}
    assert list(parsed.processes.values()) == ["orchestrator", "generator", "verifier"]
    slots = {name: len(slices) for name, slices in sorted(parsed.slots("generator").items())}
    assert slots == {"generator/slot 0": 3, "generator/slot 1": 2, "generator/slot 2": 1}
    (_, name, said) = next(each for each in parsed.instants if each[1].startswith("cancel"))
    assert (name, said["cancelled"], said["node"]) == ("cancel generator", "slot", "0")
    assert [each[:3] for each in parsed.slices["verifier/idle"]] == [(0.0, 2.0, "budget")]
    assert parsed.slices["generator/slot 0"][0][2] == "speculative 0 (cancelled)"


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
    (folder / EVENTS).write_bytes(log_bytes(SESSION))
    log = StepLog(folder, "generator", StepSession(session=SESSION.time, sampled=False))
    same = EngineStep(t=0.0, seconds=0.01, scheduled=8, queued=0, context_tokens=0)
    for t, tokens, blocks in ((0.02, 8, 3), (0.04, 8, 5), (0.55, 4, 5)):
        log.write([replace(same, t=t, generated_tokens=tokens, blocks_used=blocks)])
    log.close()
    file, counts = write_trace(folder, tmp_path / "of.json")
    counters = Parsed(file).counters
    assert counts.steps == 3
    assert counters["generator/KV blocks in use"] == [(0.02, 3), (0.04, 5)]
    assert counters["generator/batch"] == [(0.02, 8)]
    rates = [(round(t, 6), number) for t, number in counters["generator/tokens/s"]]
    assert rates == [(0.0, 160), (0.1, 0), (0.5, 40), (0.6, 0)]
    assert "verifier/batch" not in counters


def test_a_run_that_has_not_begun_has_no_trace_and_none_is_half_written(tmp_path):
    create_run(tmp_path, {})
    with pytest.raises(RunError, match="has not begun"):
        write_trace(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [CONFIG]
    with pytest.raises(RunError, match="cannot be written"):
        write_trace(tmp_path, tmp_path / CONFIG / "trace")
