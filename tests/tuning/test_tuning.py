"""Tuning without a server: what is sent, how it is measured, what follows from it."""

import asyncio
import json
from itertools import islice, pairwise, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.driver.scripted_run import PROBLEMS, Run

from tts.build.errors import RunError
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.endpoints.scripted import Calls, ScriptedGenerator, ScriptedVerifier
from tts.engines.simulated import Affine
from tts.reports.tuning import engine_table, proposal_sentence
from tts.runlog.events import Generated
from tts.search import BeamSearchConfig
from tts.simulation.virtual_time import run_virtual
from tts.tuning.analysis import SHARE, Knee, knee, levels, propose
from tts.tuning.fit import fit_decode, fit_line, fit_prefill, read_fits
from tts.tuning.measure import LEAST_ROUNDS, ROUNDS, Measured, Sample, closed_loop, measure
from tts.tuning.requests import recorded_requests
from tts.tuning.result import to_json
from tts.tuning.workload import (
    SALT_TOKENS,
    Job,
    Loadable,
    doubling,
    loadable_generator,
    loadable_verifier,
    salted,
)

# what is sent


@pytest.fixture
def run(tiny_deployment, tokenizer_folder):
    encode = Tokenizer(tokenizer_folder).encode
    words = [encode("37"), encode(" + "), encode("= 95")], encode("\n\n")
    return Run(tiny_deployment, words, BeamSearchConfig(n=4, beam_width=2), "decoupled").go()


def recorded_of(run):
    config = {"seed": 1, "parameters": run.config.model_dump(mode="json")}
    return recorded_requests(run.models, PROBLEMS, config, run.events)


def test_the_requests_of_a_run_are_those_that_the_engines_were_sent(run):
    recorded = recorded_of(run)
    sent = [(call.input_ids.tobytes(), call.seed) for call in recorded.generations]
    assert sorted(sent) == sorted(run.calls.generated)
    assert sorted(s.ids.tobytes() for s in recorded.scorings) == sorted(run.calls.scored)
    lengths = [event.tokens for event in run.events if isinstance(event, Generated)]
    assert sorted(call.max_new_tokens for call in recorded.generations) == sorted(lengths)
    assert all(0 < scoring.known < len(scoring.ids) for scoring in recorded.scorings)
    dialogues = {scoring.ids.tobytes() for scoring in recorded.scorings}
    parents = [s for s in recorded.scorings if s.ids[: s.known].tobytes() in dialogues]
    assert parents, "no dialogue extends another"


def test_siblings_stay_together(run):
    prompts = [call.input_ids.tobytes() for call in recorded_of(run).generations]
    changes = sum(a != b for a, b in pairwise(prompts))
    assert changes < len(set(prompts)) + 4  # a prompt may be two nodes': steps may be equal
    assert len(set(prompts)) < len(prompts)


def test_replaying_sends_the_same_generations_and_new_dialogues_of_the_same_shape(run):
    recorded, calls = recorded_of(run), Calls()
    spec = run.models.deployment
    generator = loadable_generator(ScriptedGenerator(*run.words, calls=calls), recorded, spec)
    verifier = loadable_verifier(ScriptedVerifier(calls=calls), recorded, spec)

    async def send(jobs):
        return [await job.send() for job in jobs]

    count = len(recorded.generations)
    done = asyncio.run(send(islice(generator.jobs(0), count)))
    assert done == [call.max_new_tokens for call in recorded.generations]
    assert sorted(calls.generated) == sorted(run.calls.generated)
    count = len(recorded.scorings)
    asyncio.run(send(islice(verifier.jobs(3), 2 * count)))
    assert len(set(calls.scored)) == 2 * len({s.ids.tobytes() for s in recorded.scorings})
    tails = [ids[4 * SALT_TOKENS :] for ids in calls.scored]
    assert tails[:count] == tails[count:]
    assert tails[:count] == [s.ids[SALT_TOKENS:].tobytes() for s in recorded.scorings]
    whole = set(calls.scored)
    calls.scored.clear()
    asyncio.run(send(verifier.warm_up(3, count)))
    assert calls.scored
    for parent in calls.scored:
        assert any(ids.startswith(parent) for ids in whole), "a parent that nothing extends"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 12))
def test_a_salt_is_its_own(first, second, length):
    ids, alphabet = np.arange(100, 100 + length, dtype=np.int32), np.arange(50, dtype=np.int32)
    one, other = (salted(ids, salt, alphabet) for salt in (first, second))
    assert len(one) == length
    assert list(one[SALT_TOKENS:]) == list(ids[SALT_TOKENS:])
    if length >= SALT_TOKENS:
        assert (list(one) == list(other)) == (first == second)
    assert ids[0] == 100


@given(st.integers(1, 100), st.floats(1, 1e6))
def test_loads_double_until_beyond(first, least_last):
    loads = doubling(first, least_last)
    assert loads[0] == first
    assert loads[-1] >= least_last or loads == (first,)
    assert all(load < least_last for load in loads[:-1])
    assert all(after == 2 * before for before, after in pairwise(loads))


# how it is measured


class Batching:
    """An engine on virtual time: a request of so many tokens in steps that all share."""

    def __init__(self, step_s, each_s):
        self.step_s, self.each_s = step_s, each_s
        self.running = self.most = 0

    def job(self, tokens, cost=1):
        async def send():
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(tokens):
                await asyncio.sleep(self.step_s + self.each_s * self.running)
            self.running -= 1
            return tokens

        return Job(cost, send)


def looped(jobs, load):
    async def go():
        return await closed_loop(jobs, load, asyncio.get_running_loop().time)

    return run_virtual(go())


@given(st.floats(1e-3, 1.0), st.floats(1e-4, 1.0), st.integers(1, 40), st.integers(1, 20))
def test_a_closed_loop_measures_what_the_formula_says(step_s, each_s, load, tokens):
    engine = Batching(step_s, each_s)
    sample = looped([engine.job(tokens) for _ in range(4 * load)], load)
    assert engine.most == load
    per_step = step_s + each_s * load
    assert sample.tokens_per_s == pytest.approx(load / per_step, rel=1e-6)
    assert sample.latency_s == pytest.approx(tokens * per_step, rel=1e-6)
    # Little's law
    assert sample.requests_per_s * sample.latency_s == pytest.approx(load, rel=1e-6)


def test_a_budget_of_tokens_holds_but_for_one_that_is_larger():
    engine = Batching(1.0, 0.0)
    looped([engine.job(1, cost) for cost in [3, 3, 3, 3, 3, 3]], 7)
    assert engine.most == 2
    engine = Batching(1.0, 0.0)
    looped([engine.job(1, 100) for _ in range(3)], 7)
    assert engine.most == 1


def test_jobs_that_never_fill_the_loop_measure_nothing():
    assert looped([Batching(1.0, 0.0).job(1)], 8) == Sample(8, 0.0, 0.0, 0.0)
    assert looped([], 8) == Sample(8, 0.0, 0.0, 0.0)


def measured(seconds, step_s=1.0, each_s=0.1, loads=(1, 2, 4)):
    engine, order, warmed = Batching(step_s, each_s), [], []

    def warm_up(measurement, count):
        warmed.append((measurement, count))
        return [engine.job(1)]

    loadable = Loadable("generator", loads, 1.0, 4, lambda _: repeat(engine.job(3)), warm_up)
    into = Measured("generator", 4)

    async def go():
        clock = asyncio.get_running_loop().time
        await measure(
            loadable,
            seconds,
            into,
            first=100,
            on_load=lambda load, round_: order.append((round_, load)),
            clock=clock,
        )
        return clock()

    return into, order, warmed, run_virtual(go())


def test_rounds_go_up_and_down_and_the_first_is_discarded():
    into, order, warmed, took = measured(20_000)
    assert order[:6] == [(0, 4), (0, 2), (0, 1), (1, 1), (1, 2), (1, 4)]
    assert len(order) == 3 * (ROUNDS + 1)
    assert [sample.load for sample in into.samples] == [load for _, load in order[3:]]
    assert [number for number, _ in warmed] == list(range(100, 100 + len(order)))
    by_load = {load: set() for load in (1, 2, 4)}
    for (_, load), (_, count) in zip(order[3:], warmed[3:], strict=True):
        by_load[load].add(count)
    assert all(len(counts) == 1 for counts in by_load.values()), "other work in another round"
    assert 0.3 * 20_000 < took < 20_000


def test_too_little_time_still_gives_the_least_rounds():
    into, order, _, _ = measured(1)
    assert order[-1][0] == LEAST_ROUNDS
    assert [level.repeats for level in levels(into.samples)] == [LEAST_ROUNDS] * 3


# what follows


def samples_of(step_s, each_s, loads, noise=(1.0,)):
    return [
        Sample(load, factor * load / (step_s + each_s * load), 1.0, 1.0)
        for factor in noise
        for load in loads
    ]


LOADS = [2**power for power in range(9)]


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 10), st.lists(st.floats(0.9, 1.1), min_size=3, max_size=6))
def test_the_interval_holds_the_knee(step_s, noise):
    found = knee(samples_of(step_s, 1.0, LOADS, noise))
    wanted = SHARE * LOADS[-1] / (step_s + LOADS[-1])
    exact = wanted * step_s / (1 - wanted)
    assert found == knee(samples_of(step_s, 1.0, LOADS, noise)), "drawn differently"
    if found.load is None:
        assert exact > LOADS[-1] / 4
    else:
        assert found.load == pytest.approx(max(1, exact), rel=1e-6)
        assert found.low - 1e-9 <= found.load
        assert found.high is None or found.load <= found.high + 1e-9


def test_samples_without_noise_have_no_interval():
    found = knee(samples_of(1.0, 1.0, LOADS, (1.0, 1.0)))
    assert found.low == pytest.approx(found.load) == pytest.approx(found.high)


def test_an_interval_that_reaches_beyond_what_was_measured_is_open():
    noise = {1: (1.0, 1.0), 2: (1.9, 1.9), 4: (2.0, 3.0), 8: (2.0, 3.0)}
    samples = [Sample(load, rate, 1.0, 1.0) for load, rates in noise.items() for rate in rates]
    found = knee(samples)
    assert found.high is None


def test_a_load_measured_once_counts_for_nothing():
    samples = samples_of(1.0, 1.0, LOADS, (1.0, 1.0))
    assert levels([*samples, Sample(1024, 50.0, 1.0, 1.0)]) == levels(samples)


@pytest.mark.parametrize(
    ("role", "found", "value", "why"),
    [
        ("generator", Knee(20, 10, 31.2), 32, "upper end"),
        ("generator", Knee(20, 10, 200), 64, "max_batch_size"),
        ("generator", Knee(20, 10, None), 64, "max_batch_size"),
        ("generator", Knee(None, None, None), 64, "max_batch_size"),
        ("verifier", Knee(900, 800, 1234), 1300, "upper end"),
        ("verifier", Knee(100, 100, 120), 512, "max_seq_len"),
        ("verifier", Knee(None, None, None), 5100, "max_batch_size requests"),
    ],
)
def test_the_policy_is_the_upper_end_within_what_makes_sense(role, found, value, why):
    holds = 64 if role == "generator" else 5012.3
    proposal = propose(role, found, holds, load_deployment("demo"))
    assert (proposal.value, proposal.present) == (value, 64 if role == "generator" else 4096)
    assert why in proposal.why


def test_the_table_marks_the_knee_and_says_what_it_means():
    samples = samples_of(1.0, 0.5, LOADS, (1.0, 1.0, 1.0))
    found = knee(samples)
    console = Console(width=100)
    with console.capture() as capture:
        console.print(engine_table("generator", levels(samples), found))
        console.print(proposal_sentence(propose("generator", found, 64, load_deployment("demo"))))
    text = capture.get()
    (row,) = [line for line in text.splitlines() if line.endswith("knee")]
    assert int(row.split()[0]) / 2 < found.load <= int(row.split()[0])
    assert "Knee (95% of the best): 33 requests, 95% interval 33 to 33." in text
    assert "measured 3 times" in text
    assert "generator.in_flight_requests: 64 -> 33 (the upper end" in text
    assert "…" not in text


def test_the_table_says_when_no_knee_was_seen():
    samples = samples_of(1.0, 0.0, LOADS, (1.0, 1.0))
    console = Console(width=100)
    with console.capture() as capture:
        console.print(engine_table("verifier", levels(samples), knee(samples)))
    assert "No knee was seen: 128 tokens still fall short of 95%" in capture.get()


# step times


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_line_is_found_again(step_s, each_s):
    if step_s + each_s < 1e-3:
        return
    points = [(load, each_s + step_s / load) for load in LOADS]
    assert fit_line(points) == pytest.approx((step_s, each_s), rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100)), min_size=2, max_size=20))
def test_no_fit_is_negative(points):
    if len({n for n, _ in points}) < 2:
        return
    step_s, each_s = fit_line(points)
    assert step_s >= 0
    assert each_s >= 0
    assert step_s + each_s > 0


def test_one_load_is_no_line():
    with pytest.raises(ValueError, match="fewer than two loads"):
        fit_line([(4, 1.0), (4, 1.1)])


def test_step_times_are_fitted_within_the_batch_only():
    engine = {"max_batch_size": 64, "max_num_tokens": 640, "computed_tokens": 20.0}
    step_s, each_s = 4e-3, 1e-4
    decode = [
        {"load": n, "tokens_per_s": min(n, 64) / (step_s + each_s * min(n, 64))} for n in LOADS
    ]
    found = fit_decode({**engine, "levels": decode})
    assert found.step_s == pytest.approx(step_s)
    assert found.decode_s == pytest.approx(each_s)
    prefill = []
    for n in LOADS:
        rate = min(n, 32) / (step_s + each_s * 20 * min(n, 32))  # 32 requests fill max_num_tokens
        prefill.append({"requests_per_s": rate, "latency_s": n / rate})
    found = fit_prefill({**engine, "levels": prefill})
    assert found.step_s == pytest.approx(step_s)
    assert found.prefill_token_s == pytest.approx(each_s)


def test_a_result_is_kept_and_fitted(run, tmp_path):
    both = [Measured("generator", 8), Measured("verifier", 200)]
    for engine in both:
        engine.samples += [
            Sample(n, 1e3 * n / (4 + n), 100 * n / (4 + n), (4 + n) / 100)
            for n in (1, 2, 4, 8, 16)
            for _ in range(2)
        ]
    result = to_json(run.models.deployment, "runs/one", recorded_of(run), both, [])
    (tmp_path / "tune.json").write_text(json.dumps(result))
    fits = read_fits(tmp_path)
    assert fits == read_fits(tmp_path / "tune.json")
    assert fits["generator"] == Affine(pytest.approx(4e-3), decode_s=pytest.approx(1e-3))
    computed = result["engines"]["verifier"]["computed_tokens"]
    assert 0 < computed <= result["engines"]["verifier"]["prompt_tokens"]
    assert fits["verifier"].prefill_token_s == pytest.approx(1e-2 / computed)


def test_what_cannot_be_fitted_is_refused(tmp_path):
    with pytest.raises(RunError, match="no tune result"):
        read_fits(tmp_path)
    (tmp_path / "tune.json").write_text('{"engines": {"generator": {"levels": []}}}')
    with pytest.raises(RunError, match="can be fitted to"):
        read_fits(tmp_path)
