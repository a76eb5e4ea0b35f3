"""`/v1/rerank`: what the session ranks, in the shape that clients of Cohere, Jina and vLLM know."""

import pytest
from tests.gateway.in_process import KEY, key_ring

from tts.gateway.openai.requests import MAX_SCORES
from tts.gateway.safety.filters import FilterChain
from tts.gateway.safety.limits import KeyLimits
from tts.session import Session

QUESTION = "Compute 2 + 2."
ANSWERS = ["2 + 2 = 4\n\nSo it is \\boxed{4}.", "no", r"It is \boxed{5}.", "no"]


def order(*answers, **fields):
    return "/v1/rerank", {"model": "tiny", "query": QUESTION, "documents": [*answers], **fields}


def test_answers_come_in_the_order_of_the_session(tiny_deployment, endpoints, ask):
    with Session.open(tiny_deployment, **endpoints) as session:
        ranked = session.score(QUESTION, ANSWERS).completions
    wrapped = [{"text": text} for text in ANSWERS]
    found = ask(order(*ANSWERS), order(*wrapped), order(*ANSWERS, top_n=2, return_documents=False))
    assert [status for status, _ in found] == [200] * 3
    whole, same, two = (answer for _, answer in found)
    assert [(each["index"], each["relevance_score"]) for each in whole["results"]] == [
        (done.node[0], pytest.approx(done.score)) for done in ranked
    ]
    assert all(each["document"]["text"] == ANSWERS[each["index"]] for each in whole["results"])
    assert same["results"] == whole["results"]
    assert two["results"] == [
        {name: each[name] for name in ("index", "relevance_score")} for each in whole["results"][:2]
    ]
    assert whole["id"].startswith("rerank-")
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("request_", "param", "said"),
    [
        (order(), "documents", "length"),
        (order(*["a"] * (MAX_SCORES + 1)), "documents", "length"),
        (order("a", " "), "documents[1]", "says nothing"),
        (order("a", query=" "), "query", "says nothing"),
        (order("a", top_n=0), "top_n", ">= 1"),
        (order("7 " * 400), "documents", "too long for the verifier"),
        (order("7 " * 100_000), "documents", "longest tokens"),
    ],
    ids=["none", "many", "blank", "no question", "no result", "long", "a book"],
)
def test_what_cannot_be_ordered_is_refused(endpoints, ask, request_, param, said):
    ((status, answer),) = ask(request_)
    assert (status, answer["error"]["param"]) == (400, param)
    assert said in answer["error"]["message"]
    assert not endpoints["verifier"].calls.scored


def test_keys_limits_and_filters_are_those_of_every_request(endpoints, ask, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("- {term: secret}\n")
    for asked in (order("a secret"), order("a", query="the secret")):
        ((status, answer),) = ask(asked, filters=FilterChain.load(rules))
        assert (status, answer["error"]["code"]) == (400, "content_filter")
    limited = key_ring(KeyLimits(tokens_per_minute=1))
    ((status, answer),) = ask((*order("a"), KEY), keyring=limited)
    assert status == 429
    others = key_ring(models=("tiny:*",))
    ((status, answer),) = ask((*order("a"), KEY), keyring=others)
    assert (status, answer["error"]["code"]) == (403, "model_not_allowed")
    ((status, answer),) = ask(order("a", model="big"))
    assert status == 404
