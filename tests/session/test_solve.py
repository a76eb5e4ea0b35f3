"""One problem: forms of the question, conversations, strategies, steps, usage."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.replay.recordings import Endless, ReplayGenerator, ReplayVerifier
from tests.session.endpoints import Hanging

from tts.base.errors import ConfigError, DatasetError, DeadlineExceeded, SessionError
from tts.datasets.load import load_problems
from tts.problem import Problem, Turn
from tts.prompting import Models
from tts.runs.config import read_run_config
from tts.runs.folder import PROBLEMS, read_problems, write_problems
from tts.runs.log import read_events
from tts.runs.measures import Measures
from tts.runs.replay import logged_requests, read_recording
from tts.runs.state import all_problems
from tts.search import (
    BeamSearchConfig,
    Completion,
    Expand,
    Generated,
    SampleSearch,
    SampleSearchConfig,
    Sampling,
    Search,
    SearchResult,
    Tree,
)
from tts.session import Run, Session
from tts.session import plan as plan_module

QUESTION = "Compute 2 + 2."


def test_a_text_a_pair_and_a_problem_grow_the_same_tree(session):
    asked = [QUESTION, (QUESTION, "4"), Problem("solve", QUESTION, "5")]
    text, pair, problem = (session.solve(each, n=4, seed=1) for each in asked)
    assert text.tree_digest == pair.tree_digest == problem.tree_digest
    assert text.correct is None
    assert {pair.correct, problem.correct} == {True, False}
    assert text.answer == pair.answer == problem.answer


def test_a_problem_that_no_folder_keeps_is_solved_without_a_look_at_files(session, monkeypatch):
    def look(deployment):
        raise AssertionError("the deployment's files were read")

    monkeypatch.setattr(plan_module, "deployment_digest", look)
    assert session.solve(QUESTION, n=4).completions


def test_a_result_tells_what_was_found_and_what_it_took(session, endpoints):
    result = session.solve((QUESTION, "4"), n=8, seed=2)
    assert len(result.completions) == 8
    assert result.answer == result.answers[result.vote]
    best = result.completions[0]
    assert len(best.steps) == len(best.step_scores) == len(best.node)
    assert best.steps == tuple(n.thought.text.strip() for n in result.tree.chain(best.node))
    assert result.tree_digest == result.tree.digest()
    usage = result.usage
    calls = endpoints["generator"].calls
    assert usage.generator_calls == len(calls.generated)
    assert usage.verifier_calls == len(endpoints["verifier"].calls.scored)
    assert 0 < usage.completion_tokens <= usage.generated_tokens
    assert usage.seconds >= 0
    assert repr(result).startswith("Result(problem='solve', answer=")
    assert "tree" not in repr(result)


def test_every_step_is_given_when_it_is_written_and_again_with_its_score(session):
    steps = []
    result = session.solve(QUESTION, n=4, seed=1, on_step=steps.append)
    written = [step for step in steps if step.score is None]
    scored = {step.node: step for step in steps if step.score is not None}
    nodes = {node.path: node for node in result.tree if node.thought}
    assert {step.node for step in written} == set(nodes)
    assert all(step.text == nodes[step.node].thought.text for step in steps)
    assert {path: step.score for path, step in scored.items()} == {
        path: node.score for path, node in nodes.items() if node.score is not None
    }
    assert all(step.tree is result.tree for step in steps)
    assert str(scored[result.completions[0].node]).split()[0].startswith(("0.", "1."))


def test_a_config_object_is_the_strategy_with_these_parameters(session):
    by_name = session.solve(QUESTION, strategy="beam-search", n=4, beam_width=2, seed=1)
    by_config = session.solve(QUESTION, strategy=BeamSearchConfig(n=4, beam_width=2), seed=1)
    assert by_name.tree_digest == by_config.tree_digest
    chains = session.solve(QUESTION, strategy=SampleSearchConfig(n=3, scored=False))
    assert (chains.vote, chains.usage.verifier_calls) == ("majority", 0)


class OneChain(Search):
    """A search of the program's own: one chain, written in one request."""

    def __init__(self, seed):
        self._tree = Tree()
        self._asks = [Expand((0,), seed((0,)), Sampling(0.8, 1.0, 64), whole=True)]
        self._result = None

    def ask(self):
        asks, self._asks = self._asks, []
        return asks

    def tell(self, told):
        if isinstance(told, Generated) and self._result is None:
            node = told.node
            for thought in told.thoughts:
                self._tree.add(node).thought = thought
                node = (*node, 0)
            end = node[:-1]
            done = Completion(end, self._tree.text(end), None)
            self._result = SearchResult((done,), self._tree)

    def result(self):
        return self._result


def test_a_function_may_make_the_search(session):
    result = session.solve((QUESTION, "4"), strategy=lambda problem, seed: OneChain(seed), seed=3)
    assert len(result.completions) == 1
    assert result.usage.generator_calls == 1
    assert result.answer == result.answers["majority"]
    assert result.completions[0].step_scores == (None,) * len(result.completions[0].steps)


def test_a_search_of_the_catalog_made_by_a_function_is_that_search(session):
    config = SampleSearchConfig(n=3, scored=False)
    made = session.solve(QUESTION, strategy=lambda problem, seed: SampleSearch(config, seed))
    named = session.solve(QUESTION, strategy="majority-vote", n=3, max_tokens=2048 // 8)
    assert len(made.completions) == len(named.completions) == 3


def test_the_programs_own_answers_and_equality_replace_extraction_and_grading(session):
    asked = []

    def equal(answer, other):
        asked.append((answer, other))
        return answer.lower() == other.lower()

    result = session.solve(
        (QUESTION, "FOUR"), n=4, answer_of=lambda text: "four" if text else None, equal=equal
    )
    assert (result.answer, result.correct) == ("four", True)
    assert asked == [("four", "FOUR")]


def test_searches_at_the_same_time_share_one_driver_and_keep_their_counts_apart(
    opened_async, endpoints
):
    async def both():
        async with opened_async() as session:
            alone = await session.solve(QUESTION, n=4, seed=1)
            together = await asyncio.gather(
                *(session.solve(QUESTION, n=4, seed=seed) for seed in (1, 2, 1))
            )
            return alone, together

    alone, together = asyncio.run(both())
    assert [r.tree_digest == alone.tree_digest for r in together] == [True, False, True]
    for result in (together[0], together[2]):
        assert result.usage.completion_tokens == alone.usage.completion_tokens
    calls = len(endpoints["generator"].calls.generated)
    assert alone.usage.generator_calls + sum(r.usage.generator_calls for r in together) == calls


def test_a_deadline_ends_its_own_problem_only(opened_async):
    hanging = Hanging()

    async def run():
        async with opened_async(generator=hanging) as session:
            with pytest.raises(DeadlineExceeded):
                await session.solve(QUESTION, n=4, deadline_s=0.01)
            assert session.in_flight == (0, 0)

    asyncio.run(run())
    assert hanging.in_flight == 0


def test_the_generator_writes_without_a_search(session):
    texts = session.generate("Say something.", n=3, max_tokens=12, seed=5)
    assert len(texts) == 3
    assert texts == session.generate("Say something.", n=3, max_tokens=12, seed=5)
    chat = [{"role": "user", "content": "Say something."}]
    assert texts == session.generate(chat, n=3, max_tokens=12, seed=5)
    with pytest.raises(DatasetError, match="320"):
        session.generate("7 " * 400)


def test_a_text_is_drawn_alike_by_both_kinds_of_session(opened, opened_async, endpoints):
    calls = []

    class Recording:
        async def generate(self, call):
            calls.append((call.temperature, call.top_p, call.seed, call.stop_at_step))
            return await endpoints["generator"].generate(call)

    async def ask():
        async with opened_async(generator=Recording()) as session:
            return await session.generate("Say something.")

    with opened(generator=Recording()) as session:
        assert session.generate("Say something.") == asyncio.run(ask())
    assert calls[0] == calls[1]
    assert (calls[0][0], calls[0][1], calls[0][3]) == (0.8, 1.0, False)


def test_the_verifier_scores_each_step_as_in_a_search(session):
    result = session.solve(QUESTION, n=4, seed=1)
    chain = result.completions[0]
    scored = session.score(QUESTION, [chain.steps]).completions[0]
    assert scored.step_scores == pytest.approx(chain.step_scores)
    with pytest.raises(DatasetError, match="too long for the verifier"):
        session.score(QUESTION, ["7 " * 400])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"strategy": "bean-search"}, "'bean-search'"),
        ({"strategy": 3}, "The strategy is 3"),
        ({"n": 10}, "beam_width"),
        ({"width": 3}, "'width'"),
        ({"strategy": BeamSearchConfig(n=4), "beam_width": 2}, "beam_width"),
        ({"strategy": BeamSearchConfig(n=4, max_tokens=5000)}, "max_tokens is 5000"),
        ({"strategy": SampleSearch}, "SampleSearch is made with a config"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused_before_anything_is_sent(
    session, endpoints, arguments, named
):
    with pytest.raises(ConfigError, match=named):
        session.solve(QUESTION, **arguments)
    assert endpoints["generator"].calls.generated == []


def test_a_closed_session_says_so(opened, opened_async):
    session = opened()
    session.close()
    session.close()
    with pytest.raises(SessionError, match="closed"):
        session.solve(QUESTION)
    with pytest.raises(SessionError, match="not open"):
        asyncio.run(opened_async().generate("Hello."))


HISTORY = (
    Turn("system", "Answer in German."),
    Turn("user", "Compute 1 + 3."),
    Turn("assistant", "It is 4."),
)
CONVERSATION = [
    *({"role": turn.role, "content": turn.content} for turn in HISTORY),
    {"role": "user", "content": QUESTION},
]
SHOWN = "User: Compute 1 + 3.\n\nAssistant: It is 4.\n\nUser: Compute 2 + 2."


def with_system_prompt(deployment, text):
    generator = deployment.generator.model_copy(update={"system_prompt": text})
    return deployment.model_copy(update={"generator": generator})


def test_a_conversation_is_the_generators_prompt_and_the_verifiers_question(
    tiny_deployment, endpoints, tokenizer
):
    deployment = with_system_prompt(tiny_deployment, "The deployment's own.")
    with Session.open(deployment, **endpoints) as session:
        result = session.solve(CONVERSATION, n=4, seed=1)
    assert result.problem == Problem("solve", QUESTION, history=HISTORY)
    prompt = (
        "<|begin_of_text|><|system|>Answer in German.<|eot_id|><|user|>Compute 1 + 3.<|eot_id|>"
        "<|assistant|>It is 4.<|eot_id|><|user|>Compute 2 + 2.<|eot_id|><|assistant|>"
    )
    sent = min((ids for ids, _ in endpoints["generator"].calls.generated), key=len)
    assert np.frombuffer(sent, np.int32).tolist() == tokenizer.encode(prompt)
    dialogue = Models.load(deployment).verifier.first(SHOWN, result.completions[0].steps[0])
    assert dialogue.tobytes() in endpoints["verifier"].calls.scored


def test_a_conversation_of_one_message_is_that_question(session):
    alone = [{"role": "user", "content": QUESTION}]
    asked = [QUESTION, alone, (alone, "4"), tuple(alone), Problem("solve", QUESTION, history=())]
    digests = {session.solve(each, n=4, seed=1).tree_digest for each in asked}
    assert len(digests) == 1
    assert session.solve(CONVERSATION, n=4, seed=1).tree_digest not in digests


def test_without_a_system_message_the_deployments_own_stands_first(tiny_deployment, tokenizer):
    models = Models.load(with_system_prompt(tiny_deployment, "Be brief."))
    prompt, _ = models.prompts(Problem("p", QUESTION, history=HISTORY[1:]))
    assert prompt.tolist() == tokenizer.encode(
        "<|begin_of_text|><|system|>Be brief.<|eot_id|><|user|>Compute 1 + 3.<|eot_id|>"
        "<|assistant|>It is 4.<|eot_id|><|user|>Compute 2 + 2.<|eot_id|><|assistant|>"
    )


def test_a_system_message_alone_changes_nothing_for_the_verifier(tiny_deployment):
    models = Models.load(tiny_deployment)
    plain, told = (Problem("p", QUESTION, history=turns) for turns in ((), HISTORY[:1]))
    assert told.full_question == QUESTION
    assert models.prompts(told)[1].tolist() == models.prompts(plain)[1].tolist()
    assert models.prompts(told)[0].tolist() != models.prompts(plain)[0].tolist()


@given(
    st.lists(
        st.builds(Turn, st.sampled_from(["system", "user", "assistant"]), st.text(max_size=20)),
        max_size=4,
    )
)
def test_problems_come_back_from_a_run_folder_with_their_conversations(tmp_path_factory, turns):
    folder = tmp_path_factory.mktemp("run")
    problems = [Problem("a", QUESTION, "4", 2, tuple(turns)), Problem("b", QUESTION, "4")]
    write_problems(folder, problems)
    assert read_problems(folder) == problems
    assert load_problems(str(folder / PROBLEMS))[0] == problems[0]


def test_a_rewards_function_reads_the_turns_in_front_of_the_question(opened):
    read = set()

    def reward(question, steps):
        read.add(question)
        return 0.5

    with opened(verifier=reward) as session:
        session.solve(CONVERSATION, n=4)
        assert read == {SHOWN}
        ranked = session.score(CONVERSATION, [["one", "two"]])
        assert ranked.completions[0].step_scores == (0.5, 0.5)
        assert read == {SHOWN}


def test_steps_are_scored_after_a_conversation_as_in_its_search(session):
    chain = session.solve(CONVERSATION, n=4, seed=1).completions[0]
    scored = session.score(CONVERSATION, [chain.steps]).completions[0]
    assert scored.step_scores == pytest.approx(chain.step_scores)


def test_the_folder_of_a_conversation_rebuilds_replays_and_resumes_its_requests(
    session, endpoints, tiny_deployment, tmp_path
):
    folder = tmp_path / "run"
    asked = [(CONVERSATION, "4"), QUESTION]
    results = {r.problem.id: r for r in session.solve_many(asked, n=4, seed=1, out=folder)}
    models = Models.load(tiny_deployment)
    found = list(logged_requests(read_events(folder), models))
    for engine, sent in (
        ("generator", [ids for ids, _ in endpoints["generator"].calls.generated]),
        ("verifier", endpoints["verifier"].calls.scored),
    ):
        prompts = Counter(r.ids.prompt.tobytes() for r in found if r.engine == engine)
        assert Counter(sent) <= prompts
    config, problems = read_run_config(folder), read_problems(folder)
    assert problems[0] == Problem("1", QUESTION, "4", history=HISTORY)
    script = read_recording(folder, config, models)
    replayed = {
        "generator": ReplayGenerator(Endless(), script),
        "verifier": ReplayVerifier(Endless(), script),
    }
    with Session.open(tiny_deployment, **replayed) as again:
        for result in again.solve_many(problems, n=4, seed=1):
            assert result.tree_digest == results[result.problem.id].tree_digest
    trees = {tree.id: tree for tree in all_problems(read_events(folder))}
    assert trees["1"].question == SHOWN
    assert trees["2"].question == QUESTION
    resumed = list(session.solve_many(asked, n=4, seed=1, out=folder, resume=True))
    assert {r.problem.id: r.tree_digest for r in resumed} == {
        name: result.tree_digest for name, result in results.items()
    }
    assert {problem.id for problem in Run.load(folder).problems} == {"1", "2"}


def test_equal_questions_after_different_conversations_are_not_compared(session, tmp_path):
    seen = []
    for turn, name in (("Be brief.", "a"), ("Be long.", "b"), ("Be brief.", "c")):
        asked = [{"role": "system", "content": turn}, CONVERSATION[-1]]
        list(session.solve_many([asked], n=4, out=tmp_path / name))
        seen.append(Measures.of(read_events(tmp_path / name)).problems["1"].question)
    assert seen[0] == seen[2] != seen[1]
