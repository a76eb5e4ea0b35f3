"""A question with a conversation before it: what both models read, and what a run keeps of it."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.replay.recordings import Endless, ReplayGenerator, ReplayVerifier

from tts.datasets.load import load_problems
from tts.problem import Problem, Turn
from tts.prompting import Models
from tts.runs.config import read_run_config
from tts.runs.folder import PROBLEMS, read_problems, write_problems
from tts.runs.log import read_events
from tts.runs.measures import Measures
from tts.runs.replay import logged_requests, read_recording
from tts.runs.state import all_problems
from tts.session import Run, Session

QUESTION = "Compute 2 + 2."
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
