"""The token ids of one problem, and whether they fit the engines."""

import pytest

from tts.build.errors import DatasetError
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.search import Stop, Thought

PROBLEM = Problem("p", "Compute 37 + 58.")


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
