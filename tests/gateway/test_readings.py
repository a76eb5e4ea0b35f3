"""Scores of texts that a client has: the steps of an answer, answers in their order."""

import pytest
from tests.gateway.in_process import KEY, POOLING, key_ring

from tts.gateway.openai.requests import MAX_SCORES
from tts.gateway.safety.limits import KeyLimits
from tts.session import Session

QUESTION = "Compute 2 + 2."
ANSWERS = ["2 + 2 = 4\n\nSo it is \\boxed{4}.", "no", r"It is \boxed{5}.", "no"]
CONVERSATION = [
    {"role": "system", "content": "Answer in German."},
    {"role": "user", "content": "Compute 9."},
    {"role": "assistant", "content": "It is 9."},
    {"role": "user", "content": QUESTION},
]


def score_of(text):
    said = [*CONVERSATION, {"role": "assistant", "content": text}]
    return POOLING, {"model": "tiny", "messages": said}


def order(*answers, **fields):
    return "/v1/rerank", {"model": "tiny", "query": QUESTION, "documents": [*answers], **fields}


@pytest.mark.parametrize("scores", ["steps", "answers"])
def test_an_answer_is_scored_after_a_whole_conversation(tiny_deployment, endpoints, ask, scores):
    """A verifier of whole answers scores the whole answer alone."""
    verifier = tiny_deployment.verifier.model_copy(update={"scores": scores})
    deployment = tiny_deployment.model_copy(update={"verifier": verifier})
    steps, calls = ["2 + 2 = 4", "So it is 4."], endpoints["verifier"].calls
    with Session.open(deployment, **endpoints) as session:
        wanted = session.score(CONVERSATION, [steps]).completions[0].step_scores
    calls.scored.clear()
    ((status, answer),) = ask(score_of("\n\n".join(steps)), deployment=deployment)
    assert status == 200
    assert answer["id"].startswith("pool-")
    pairs = answer["data"][0]["data"]
    assert [right for _, right in pairs] == list(wanted if scores == "steps" else wanted[-1:])
    assert [wrong + right for wrong, right in pairs] == pytest.approx([1] * len(pairs))
    assert len(calls.scored) == len(pairs)
    tokens = max(map(len, calls.scored)) / 4
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] == tokens


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
        (score_of("7 " * 400), "messages", "more than the 319 that its context leaves"),
        (score_of("\n\n".join(["7 7 7"] * 80)), "messages", "too long for the verifier: "),
        (score_of("7 " * 100_000), "messages", "194,592 more than that many of its longest"),
        (score_of("7\n\n" * (MAX_SCORES + 1)), "messages", "1,025 steps; 1 to 1,024 can be"),
        (score_of(" "), "messages", "has 0 steps"),
    ],
)
def test_what_the_verifier_cannot_read_is_refused_before_anything_is_sent(
    endpoints, ask, request_, param, said
):
    ((status, answer),) = ask(request_)
    assert (status, answer["error"]["param"]) == (400, param)
    assert said in answer["error"]["message"]
    assert not endpoints["verifier"].calls.scored


def test_keys_limits_and_filters_are_those_of_every_request(endpoints, ask, filters_of):
    for asked in (order("a secret"), order("a", query="the secret")):
        ((status, answer),) = ask(asked, filters=filters_of("- {term: secret}\n"))
        assert (status, answer["error"]["code"]) == (400, "content_filter")
    limited = key_ring(KeyLimits(tokens_per_minute=1))
    ((status, answer),) = ask((*order("a"), KEY), keyring=limited)
    assert status == 429
    others = key_ring(models=("tiny:*",))
    ((status, answer),) = ask((*order("a"), KEY), keyring=others)
    assert (status, answer["error"]["code"]) == (403, "model_not_allowed")
    ((status, answer),) = ask(order("a", model="big"))
    assert status == 404
