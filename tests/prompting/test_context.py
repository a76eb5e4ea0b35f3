"""The token ids of one problem, and whether they fit the engines."""

import pytest

from tts.build.errors import DatasetError
from tts.problem import Problem
from tts.prompting import Context, Models

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
