"""Replays: the tree is the recorded one, the engines are asked for work of the recorded size."""

import asyncio
import json
import random
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import write_tokenizer
from tests.driver.scripted_run import PROBLEMS, Run
from tests.driver.test_driver import CONFIGS, STOPPING, WORDS, same_scores
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from typer.testing import CliRunner

from tts.bench.replaying import as_recorded, recorded_work
from tts.bench.request import Wanted
from tts.build.errors import ConfigError, DatasetError, EndpointError, RunError
from tts.build.tokenizer import Tokenizer
from tts.cli import app
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.prompting.context import Context, Models
from tts.replay import (
    Chain,
    ReplayGenerator,
    ReplayVerifier,
    TraceScript,
    open_source,
    read_chains,
    read_recording,
)
from tts.reports.runs import replay_line
from tts.scheduling import ScheduleName
from tts.search import BeamSearchConfig, Stop
from tts.simulation.scenario import Recorded, Scenario, digest_of, simulate, simulated_deployment

SCHEDULES = get_args(ScheduleName)
PROMPTING = {
    "generator": {"system_prompt", "step_delimiter"},
    "verifier": {"format", "step_tag", "template"},
}
FEW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass
class Endless:
    """An engine that writes one token until the limit, and finds everything as good."""

    asked: list[int] = field(default_factory=list)
    scored: int = 0
    jitter: random.Random = field(default_factory=random.Random)

    async def generate(self, call):
        assert not call.stop_at_step
        for _ in range(self.jitter.randint(0, 20)):
            await asyncio.sleep(0)
        self.asked.append(call.max_new_tokens)
        return [7] * call.max_new_tokens

    async def score(self, call):
        for _ in range(self.jitter.randint(0, 20)):
            await asyncio.sleep(0)
        self.scored += 1
        return VerifierResult(0.5)


@pytest.fixture(scope="module")
def words(tokenizer_folder):
    tokenizer = Tokenizer(tokenizer_folder)
    return [tokenizer.encode(word) for word in WORDS], tokenizer.encode("\n\n")


def config_of(deployment, parameters):
    return {
        "deployment": deployment.name,
        "deployment_source": "tiny",
        "prompting": deployment.model_dump(mode="json", include=PROMPTING),
        "dataset": "tiny",
        "limit": None,
        "seed": 1,
        "strategy": "beam-search",
        "parameters": parameters.model_dump(mode="json"),
        "context": deployment.generator.max_seq_len,
        "schedule": "lockstep",
        "problem_ids": [problem.id for problem in PROBLEMS],
    }


def record(folder, run, deployment):
    """Keep a scripted run as a real one is kept."""
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(config_of(deployment, run.config)))
    (folder / "summary.json").write_text(json.dumps({"tree_digest": "recorded"}))
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in run.events))
    return folder


@pytest.fixture
def recorded(tiny_deployment, words, tmp_path):
    """A recorded beam search and its folder."""
    run = Run(tiny_deployment, words, CONFIGS[0], "lockstep").go()
    return run, record(tmp_path / "run", run, tiny_deployment)


def load(folder, deployment, **changes):
    config = json.loads((folder / "run.json").read_text()) | changes
    return read_recording(folder, config, Models.load(deployment), PROBLEMS)


def scores_of(run):
    return {node.score for search in run.searches.values() for node in search.tree}


def replay(deployment, words, config, schedule, script, jitter=0, **policy):
    run = Run(deployment, words, config, schedule, **policy)
    engine = Endless(jitter=random.Random(jitter))
    run.generator, run.verifier = ReplayGenerator(engine, script), ReplayVerifier(engine, script)
    return run.go(), engine


@pytest.mark.parametrize("config", CONFIGS + STOPPING)
@FEW
@given(jitter=st.integers(0, 10**6))
def test_a_replay_grows_the_recorded_trees(
    tiny_deployment, words, tmp_path_factory, config, jitter
):
    run = Run(tiny_deployment, words, config, "decoupled", jitter=jitter).go()
    folder = record(tmp_path_factory.mktemp("run"), run, tiny_deployment)
    script = load(folder, tiny_deployment)
    for schedule in SCHEDULES:
        again, _ = replay(tiny_deployment, words, config, schedule, script, jitter)
        assert again.digests == run.digests
        same_scores(again, run)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_engines_do_work_of_the_recorded_size(tiny_deployment, words, tmp_path, config):
    run = Run(tiny_deployment, words, config, "lockstep").go()
    script = load(record(tmp_path / "run", run, tiny_deployment), tiny_deployment)
    again, engine = replay(tiny_deployment, words, config, "decoupled", script, speculation="off")
    wanted = [
        e["tokens"] + (e["thoughts"][-1]["stop"] == Stop.END)
        for e in run.events
        if e["event"] == "generated"
    ]
    assert sorted(engine.asked) == sorted(wanted)
    # which outranked steps were scored before they were pruned depends on the schedule
    fresh = [e for e in again.events if e["event"] == "scored" and not e["cached"]]
    cancelled = [e for e in again.events if e["event"] == "cancelled" and e["work"] == "score"]
    # ... and what is cancelled may not have reached the engine
    assert len(fresh) <= engine.scored <= len(fresh) + len(cancelled)


def test_what_was_never_asked_gets_an_answer_that_was_recorded(tiny_deployment, recorded):
    run, folder = recorded
    first, second = load(folder, tiny_deployment), load(folder, tiny_deployment)
    prompt = np.asarray([1, 2, 3], dtype=np.int32)
    steps = {tuple(t["ids"]) for e in run.events if "thoughts" in e for t in e["thoughts"]}
    drawn = set()
    for seed in range(50):
        call = GenerateCall(prompt, 300, seed, 0.8, 1.0, stop_at_step=True)
        ids = first.generate(call)
        assert ids == second.generate(call)
        assert first.generate(replace(call, max_new_tokens=2)) == ids[:2]
        drawn.add(tuple(ids))
        dialogue = prompt + seed
        assert first.score(dialogue) == second.score(dialogue)
        assert first.score(dialogue) in scores_of(run)
    assert drawn <= steps
    assert len(drawn) > 5


def test_a_recording_keeps_the_context_that_cut_its_chains(tiny_deployment, words, tmp_path):
    def with_context(tokens):
        generator = tiny_deployment.generator.model_copy(update={"max_seq_len": tokens})
        return tiny_deployment.model_copy(update={"generator": generator})

    config = BeamSearchConfig(n=4, beam_width=2)
    run = Run(with_context(48), words, config, "lockstep")
    run.generator.end = 0.0
    run.go()
    stops = {node.thought.stop for search in run.searches.values() for node in search.tree}
    assert Stop.LENGTH in stops
    source = open_source(record(tmp_path / "run", run, with_context(48)))
    models = source.limited(Models.load(with_context(320)))
    script = source.script(models, PROBLEMS)
    again, _ = replay(models.deployment, words, config, "decoupled", script)
    assert again.digests == run.digests
    with pytest.raises(RunError, match=r"context of 48 tokens; generator.max_seq_len .* is 40"):
        source.limited(Models.load(with_context(40)))


def changed_events(folder, change):
    file = folder / "events.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        change(event)
    file.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_another_tokenizer_is_refused_by_name(tiny_deployment, recorded):
    def longer(event):
        if event["event"] == "scored" and not event["cached"]:
            event["prompt_tokens"] += 1

    def other_text(event):
        for thought in event.get("thoughts", []):
            thought["text"] += "!"

    _, folder = recorded
    changed_events(folder, longer)
    with pytest.raises(RunError, match=r"tokenizer of its verifier .* tokens here and had"):
        load(folder, tiny_deployment)
    changed_events(folder, other_text)
    with pytest.raises(RunError, match=r"tokenizer of its generator .* differs at node \d"):
        load(folder, tiny_deployment)


def test_what_does_not_fit_the_recording_is_refused_by_name(tiny_deployment, recorded, tmp_path):
    _, folder = recorded
    with pytest.raises(RunError, match=r"problems of the run in .* are not those of tiny"):
        load(folder, tiny_deployment, problem_ids=["p0"])
    verifier = tiny_deployment.verifier.model_copy(update={"max_seq_len": 30})
    with pytest.raises(RunError, match=r"scored a dialogue of \d+ .* verifier.max_seq_len"):
        load(folder, tiny_deployment.model_copy(update={"verifier": verifier}))
    generator = tiny_deployment.generator.model_copy(update={"system_prompt": "Think."})
    with pytest.raises(RunError, match=r"its generator.system_prompt was .* is 'Think.' here"):
        load(folder, tiny_deployment.model_copy(update={"generator": generator}))
    with pytest.raises(RunError, match="nothing to replay"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(RunError, match="holds no run"):
        open_source(tmp_path)
    (folder / "summary.json").unlink()
    with pytest.raises(RunError, match="has not finished"):
        open_source(folder)
    (tmp_path / "group.json").write_text("{}")
    with pytest.raises(RunError, match="holds several runs"):
        open_source(tmp_path)


def test_an_engine_that_ends_by_itself_is_an_error(tiny_deployment, recorded):
    class Ends(Endless):
        async def generate(self, call):
            return (await super().generate(call))[:-1]

    script = load(recorded[1], tiny_deployment)
    call = GenerateCall(np.asarray([1], dtype=np.int32), 50, 1, 0.8, 1.0, stop_at_step=True)
    with pytest.raises(EndpointError, match="asked for exactly"):
        asyncio.run(ReplayGenerator(Ends(), script).generate(call))


def test_a_cancelled_replay_cancels_on_the_engine(tiny_deployment, recorded):
    cancelled = []

    class Hangs:
        async def generate(self, call):
            await self.score(call)

        async def score(self, call):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(call)
                raise

    async def main():
        ids = np.asarray([1], dtype=np.int32)
        call = GenerateCall(ids, 50, 1, 0.8, 1.0, stop_at_step=True)
        for awaited in (
            ReplayGenerator(Hangs(), script).generate(call),
            ReplayVerifier(Hangs(), script).score(ScoreCall(ids)),
        ):
            task = asyncio.ensure_future(awaited)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    script = load(recorded[1], tiny_deployment)
    asyncio.run(main())
    assert len(cancelled) == 2


def test_a_recording_is_simulated_with_its_own_trees(tiny_deployment, recorded):
    run, folder = recorded
    script = load(folder, tiny_deployment)
    work = Recorded(script.models, tuple(PROBLEMS), "beam-search", run.config, 1, script)
    scenario = Scenario(
        simulated_deployment("h100", 2),
        2,
        "time-sliced",
        script,
        run.config,
        problems=len(PROBLEMS),
        in_flight=2,
        seed=1,
        speculation="off",
        recorded=work,
    )
    for schedule in SCHEDULES:
        outcome = simulate(scenario, schedule)
        assert outcome.digest == digest_of(run.digests)
        tokens = sum(e["tokens"] for e in run.events if e["event"] == "generated")
        ends = sum(
            e["thoughts"][-1]["stop"] == Stop.END for e in run.events if e["event"] == "generated"
        )
        prefetched = len(PROBLEMS) if schedule == "decoupled" else 0  # a token for each prompt
        assert outcome.generator.generated_tokens == tokens + ends + prefetched


# --- recorded chains ---------------------------------------------------------------------------

scores = st.floats(0, 1).map(lambda score: round(score, 4))
chains = st.lists(
    st.lists(st.tuples(st.integers(2, 90), scores), min_size=1, max_size=6).map(
        lambda steps: Chain(tuple(t for t, _ in steps), tuple(s for _, s in steps))
    ),
    min_size=1,
    max_size=60,
)


def wordy(folder):
    """A tokenizer with whole words in its vocabulary, as those of real models have."""
    write_tokenizer(folder)
    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("abcdefghijklmnop", k=5)) for _ in range(150)]
    tokenizer = RawTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|begin_of_text|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|eot_id|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(vocabulary)] * 5, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def wordy_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordy")
    wordy(folder)
    return folder


@pytest.fixture(params=["letters", "words"])
def written(request, tiny_deployment, wordy_folder):
    """The models of a deployment whose made-up text is of letters, or of words."""
    if request.param == "letters":
        return Models.load(tiny_deployment)
    engines = {
        role: engine.model_copy(update={"checkpoint": wordy_folder})
        for role, engine in tiny_deployment.engines().items()
    }
    return Models.load(tiny_deployment.model_copy(update=engines))


@FEW
@given(chains=chains, seed=st.integers(0, 2**63 - 1))
def test_made_up_steps_have_the_length_end_and_score_of_a_recorded_one(written, chains, seed):
    script, other = TraceScript(written, chains), TraceScript(written, chains)
    context = Context.of(written, PROBLEMS[0])
    path, going = (), True
    while going:
        depth = len(path)
        prompt = context.generator_ids(path)
        call = GenerateCall(prompt, 300, seed + depth, 0.8, 1.0, stop_at_step=True)
        ids = script.generate(call)
        assert ids == other.generate(call)
        (thought,) = written.thoughts(ids, truncated=False, whole=False)
        assert list(thought.token_ids) == ids, "the delimiter ends the step and nothing else"
        path = (*path, 0)
        context.add(path, thought)
        score = script.score(context.verifier_ids(path))
        assert score == other.score(context.verifier_ids(path))
        going = thought.stop is Stop.STEP
        assert script.ended(call, ids) is not going
        candidates = {
            (chain.scores[depth], not going)
            for chain in chains
            if len(chain.lengths) > depth
            and (len(chain.lengths) > depth + 1) is going
            and (chain.lengths[depth] == len(ids) or chain.lengths[depth] < 6)
        }
        assert (score, not going) in candidates
    assert depth < max(len(chain.lengths) for chain in chains)


def test_made_up_text_is_as_long_for_the_verifier_and_differs_at_once(written):
    script = TraceScript(written, [Chain((60, 60, 60), (0.1, 0.2, 0.3))])
    context = Context.of(written, PROBLEMS[0])
    steps = []
    for seed in range(40):
        call = GenerateCall(context.prompt, 300, seed, 0.8, 1.0, stop_at_step=True)
        steps.append(script.generate(call))
        again = written.verifier.tokenizer.encode(written.generator.decode(steps[-1]))
        assert abs(len(again) - 60) <= 6
    assert len({tuple(ids[:3]) for ids in steps}) == 40


def test_a_vocabulary_of_words_is_written_in_words(wordy_folder, tiny_deployment):
    engines = {
        role: engine.model_copy(update={"checkpoint": wordy_folder})
        for role, engine in tiny_deployment.engines().items()
    }
    models = Models.load(tiny_deployment.model_copy(update=engines))
    script = TraceScript(models, [Chain((40,), (0.5,))])
    call = GenerateCall(np.asarray([1], dtype=np.int32), 300, 1, 0.8, 1.0, stop_at_step=True)
    text = models.generator.decode(script.generate(call))
    assert len(text.split()) == 39


@pytest.mark.parametrize("config", CONFIGS)
def test_recorded_chains_drive_every_search_alike_under_every_schedule(
    tiny_deployment, words, config
):
    rng = random.Random(3)
    chains = []
    for _ in range(40):
        steps = rng.randint(1, 6)
        chains.append(
            Chain(
                tuple(rng.randint(2, 30) for _ in range(steps)),
                tuple(rng.choice((0.2, 0.5, 0.9, 1.0)) for _ in range(steps)),
            )
        )
    script = TraceScript(Models.load(tiny_deployment), chains)
    plain, _ = replay(tiny_deployment, words, config, "lockstep", script)
    assert sum(len(search.tree) for search in plain.searches.values()) > len(PROBLEMS)
    for schedule in SCHEDULES:
        other, engine = replay(tiny_deployment, words, config, schedule, script, jitter=5)
        assert other.digests == plain.digests
        same_scores(other, plain)
        assert max(engine.asked) <= config.max_tokens


def test_a_greedy_step_depends_on_its_prompt_alone(tiny_deployment):
    script = TraceScript(
        Models.load(tiny_deployment), [Chain((30, 40), (0.5, 0.6)), Chain((50,), (0.7,))]
    )
    prompt = np.asarray([1, 2, 3], dtype=np.int32)
    call = GenerateCall(prompt, 300, 1, 0.0, 1.0, stop_at_step=True)
    assert script.generate(call) == script.generate(replace(call, seed=2))
    assert script.generate(call) != script.generate(replace(call, input_ids=prompt + 1))


def test_chains_without_a_score_for_every_step_are_left_out(tmp_path):
    rows = [
        {"text": "a" * 70 + "|" + "b" * 35, "sep": "|", "step_scores": [0.9, 0.8]},
        {"text": "c|d", "sep": "|", "step_scores": [0.5]},
        {"text": "c", "sep": "|", "step_scores": None},
    ]
    file = tmp_path / "chains.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_chains(file) == [Chain((20, 10), (0.9, 0.8))]
    file.write_text(json.dumps(rows[1]) + "\n")
    with pytest.raises(DatasetError, match="no chains with a score for every step"):
        read_chains(file)


# --- the command line --------------------------------------------------------------------------

DEFAULTS = Wanted("demo", "demo", None, 0, "beam-search", "decoupled", {})


def test_a_recorded_run_decides_everything_but_deployment_and_scheduling(recorded):
    run, folder = recorded
    wanted = as_recorded(DEFAULTS, folder, {"deployment", "schedule"})
    assert (wanted.deployment, wanted.schedule, wanted.replay) == ("demo", "decoupled", folder)
    assert (wanted.seed, wanted.dataset) == (1, "tiny")
    assert wanted.parameters == run.config.model_dump(mode="json")
    same = replace(DEFAULTS, seed=1, parameters={"n": 8})
    assert as_recorded(same, folder, {"seed", "n"}) == wanted
    driven = {"speculation": "off", "in_flight": 3}
    assert as_recorded(replace(DEFAULTS, **driven), folder, set(driven)) == replace(
        wanted, **driven
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 0}, "seed is 0, but the run recorded in .* has 1"),
        ({"strategy": "dvts"}, "strategy is 'dvts'"),
        ({"dataset": "demo"}, "dataset is 'demo'"),
        ({"limit": 3}, "limit is 3"),
        ({"parameters": {"n": 16}}, "n is 16, but .* has 8"),
        ({"parameters": {"beam_wdth": 2}}, "beam_wdth is 2, but .* has None"),
    ],
)
def test_options_other_than_recorded_are_refused_by_name(recorded, changes, said):
    with pytest.raises(ConfigError, match=said):
        as_recorded(replace(DEFAULTS, **changes), recorded[1], set(changes))


def test_a_trace_file_leaves_the_options_as_they_are(tmp_path):
    file = tmp_path / "chains.jsonl"
    file.write_text("")
    assert as_recorded(DEFAULTS, file, set()) == replace(DEFAULTS, replay=file)
    assert {p.answer for p in open_source(file).problems(PROBLEMS)} == {None}
    with pytest.raises(ConfigError, match="not the folder of a recorded run"):
        recorded_work(file, {}, {})


def test_references_are_kept_where_the_text_is_real(recorded, tmp_path):
    _, folder = recorded
    assert open_source(folder).problems(PROBLEMS) == PROBLEMS
    config = json.loads((folder / "run.json").read_text())
    config["replay"] = {"text": "made up"}
    (folder / "run.json").write_text(json.dumps(config))
    assert {p.answer for p in open_source(folder).problems(PROBLEMS)} == {None}


def test_a_report_says_what_was_replayed(recorded):
    about = open_source(recorded[1]).description
    assert "trees and answers as recorded: yes" in replay_line(
        {"tree_digest": "recorded", "replay": about}
    )
    assert "as recorded: NO" in replay_line({"tree_digest": "other", "replay": about})
    assert "no answers to grade" in replay_line({"replay": {"source": "x", "text": "made up"}})
    assert replay_line({"tree_digest": "other"}) is None


def test_the_commands_know_which_options_were_given(recorded):
    _, folder = recorded

    def refused(*arguments):
        return str(CliRunner().invoke(app, [*map(str, arguments), "--replay", folder]).exception)

    assert "seed is 0, but" in refused("bench", "demo", "--seed", 0)
    assert "strategy is 'beam-search'" not in refused("bench", "demo")
    assert "seed is 7, but" in refused("simulate", "--seed", 7)
    assert "n is 3, but" in refused("simulate", "--n", 3)
    done = CliRunner().invoke(app, ["bench", "--resume", str(folder), "--replay", str(folder)])
    assert "goes on as it began" in done.stderr
    done = CliRunner().invoke(app, ["simulate", "--traces", "x", "--replay", str(folder)])
    assert "one of --traces and --replay" in done.stderr
