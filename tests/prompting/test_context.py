"""The token ids of one problem, and whether they fit the engines."""

from operator import ne
from pathlib import Path

import pytest

from tts.base.errors import DatasetError
from tts.build.spec import RemoteVerifier, Template
from tts.driver.sharing import PrefixReuse
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.prompting.score_calls import score_calls
from tts.search import Stop, Thought

PROBLEM = Problem("p", "Compute 37 + 58.")
CHECKPOINT = Path(__file__).resolve().parents[2] / "engines" / "checkpoints" / "demo-generator"


def models_with(deployment, **limits):
    """Models whose engines have these lengths, by role."""
    specs = {
        role: getattr(deployment, role).model_copy(update={"max_seq_len": limit})
        for role, limit in limits.items()
    }
    return Models.load(deployment.model_copy(update=specs))


@pytest.mark.parametrize("role", ["generator", "verifier"])
def test_a_problem_as_long_as_an_engines_context_is_refused_and_one_token_more_is_room(
    tiny_deployment, role
):
    models = Models.load(tiny_deployment)
    length = {
        "generator": len(Context.of(models, PROBLEM).generator_ids(())),
        "verifier": len(models.dialogue.first(PROBLEM.question, "")),
    }[role]
    with pytest.raises(DatasetError) as refused:
        Context.of(models_with(tiny_deployment, **{role: length}), PROBLEM)
    words = f"Problem p is {length} tokens long for the {role}, whose max_seq_len is {length};"
    assert words in str(refused.value)
    assert f"Raise {role}.max_seq_len" in refused.value.hint
    context = Context.of(models_with(tiny_deployment, **{role: length + 1}), PROBLEM)
    if role == "generator":
        assert context.room(()) == 1


def test_an_empty_step_is_a_turn_of_its_own_only_where_that_is_asked_for(tiny_deployment):
    models = Models.load(tiny_deployment)
    said, empty = Thought((), "37 + 58 = 95\n\n", Stop.STEP), Thought((), "", Stop.END)
    context = Context.of(models, PROBLEM)
    context.add((0,), said)
    context.add((0, 0), empty)
    above = context.verifier_ids((0,)).tolist()
    assert context.verifier_ids((0, 0)).tolist() == above
    context.give_own_turn((0, 0))
    context.give_own_turn((0, -1))
    for node in ((0, 0), (0, -1)):
        ids = context.verifier_ids(node).tolist()
        assert ids[: len(above)] == above
        assert len(ids) > len(above)
        assert context.generator_ids(node).tolist() == context.generator_ids((0,)).tolist()
    assert context.score_key((0, 0)) == context.score_key((0, -1)) != context.score_key((0,))


def grown(context, steps):
    """The last node of a chain of these texts."""
    for depth, text in enumerate(steps, start=1):
        context.add((0,) * depth, Thought((depth,), text, Stop.STEP))
    return (0,) * len(steps)


def asked_with(deployment, **template):
    """Models whose verifier is asked with a template."""
    made = Template.model_validate({"head": "{question} ", "answer": " +"} | template)
    verifier = deployment.verifier.model_copy(update={"format": "custom", "template": made})
    return Models.load(deployment.model_copy(update={"verifier": verifier}))


def test_an_answer_that_is_read_as_one_text_is_encoded_as_one(tiny_deployment):
    models = asked_with(tiny_deployment)
    context, encode = Context.of(models, PROBLEM), models.verifier.tokenizer.encode
    node = grown(context, ["First, 37 + 58.\n\n", "\n\n", "So 95\n\n", ""])
    whole = f"{PROBLEM.question} First, 37 + 58.\n\n\n\nSo 95 +"
    assert context.verifier_ids(node).tolist() == encode(whole)
    assert context.score_key((0, 0)) == context.score_key((0,)), "nothing was added"
    context.give_own_turn((*node, 0))
    assert context.verifier_ids((*node, 0)).tolist() == encode(whole)
    *_, call = score_calls(models, PROBLEM.question, ["First, 37 + 58.", "So 95"])
    assert call.input_ids.tolist() == encode(whole.replace("\n\n\n\n", "\n\n"))


def judged(deployment, **verifier):
    """Models whose verifier is another one, with the chat template of the bundled demo's."""
    common = {"max_seq_len": 320, "url": "http://localhost", "tokenizer": CHECKPOINT}
    spec = RemoteVerifier.model_validate(common | verifier)
    return Models.load(deployment.model_copy(update={"verifier": spec}))


def test_what_a_score_computes_and_takes_of_the_budget(tiny_deployment):
    """A prompt begins like the one above it, whoever reads it; each criterion is a request."""
    prompt, critique = "{question}\n{steps}\n{step}\n", {"verdict": {"after": "="}, "samples": 3}
    writing = {"format": "critique", "critique": critique, "in_flight_requests": 4}
    graded = {"format": "graded", "labels": {"1": 1, "2": 0}, "in_flight_tokens": 512}
    criteria = {"prompt": prompt + "{criterion}", "criteria": ["one", "two"]}
    for fields, requests in ((writing, 3), (graded, 1), (graded | criteria, 2)):
        models = judged(tiny_deployment, **{"prompt": prompt} | fields)
        context = Context.of(models, PROBLEM)
        reuse = PrefixReuse(context)
        node = grown(context, ["First, 37 + 58.\n\n", "So 95\n\n"])
        above, ids = context.verifier_ids(node[:1]), context.verifier_ids(node)
        assert reuse.read(node[:1]) == 0
        begins = next(at for at, both in enumerate(zip(above, ids, strict=False)) if ne(*both))
        assert reuse.read(node) == begins > 5
        assert context.score_cost(node) == requests * (1 if models.critic else len(ids))


def test_steps_that_say_something_are_numbered(tiny_deployment):
    models = asked_with(tiny_deployment, turn="\nStep {number}: ")
    context, encode = Context.of(models, PROBLEM), models.verifier.tokenizer.encode
    node = grown(context, ["one\n\n", "\n\n", "two\n\n", "three"])
    expected = encode(f"{PROBLEM.question} one +\nStep 2: two +\nStep 3: three +")
    assert context.verifier_ids(node).tolist() == expected
    *_, call = score_calls(models, PROBLEM.question, ["one", "", "two", "three"])
    assert call.input_ids.tolist() == expected
    context.give_own_turn((*node, 0))
    assert context.verifier_ids((*node, 0)).tolist() == [*expected, *encode("\nStep 4:  +")]


def test_equal_siblings_are_tokenised_once_and_share_their_ids(tiny_deployment, monkeypatch):
    context = Context.of(Models.load(tiny_deployment), PROBLEM)
    tokenizer, encoded = context.models.verifier.tokenizer, []
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda text: encoded.append(text) or encode(text))
    first, other = (Thought((1, 2), f"{text}\n\n", Stop.STEP) for text in ("one", "two"))
    for node, thought in (((0,), first), ((1,), first), ((2,), other), ((0, 0), first)):
        context.add(node, thought)
    ids = context.verifier_ids((0,))
    asked = len(encoded)
    assert asked
    assert context.verifier_ids((1,)) is ids
    assert len(encoded) == asked
    assert context.score_key((2,)) != context.score_key((1,)) == context.score_key((0,))
    assert context.score_key((0, 0)) != context.score_key((0,)), "the parent is part of the chain"
    assert context.score_call((0, 0)).steps == ("one", "one")
