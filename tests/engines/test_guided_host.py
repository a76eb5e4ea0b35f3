"""The engine host with grammars: outputs that follow them, and requests beside them that do not.

The tiny engine's weights are random, so that it would break every form that it is not held to.
"""

import json
import re
import threading

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.constraints.languages import nodes
from tests.constraints.test_schema_check import RIGHT as SCHEMAS
from tests.engines.conftest import VOCABULARY
from tests.engines.host_requests import sampled
from tests.engines.test_guide_grammar import RIGHT

from tts.constraints import answer_constraint
from tts.constraints.schema_check import checked_schema
from tts.constraints.step_grammar import step_grammar
from tts.engines.generate_request import GenerateRequest
from tts.engines.grammar_compiler import THREADS
from tts.engines.responses import Failure
from tts.engines.wire import EBNF, JSON_SCHEMA, Guide
from tts.gateway.answer.structured import schema_guide

END = 2
# a vocabulary of characters, of words that open a box and of parts of an é
TEXTS = [
    b"",
    b"",
    b"",
    b"\\boxed{",
    b"}\n\n",
    b"\\bo",
    b"xed{",
    b"d{1",
    b"\xc3",
    b"\xa9",
    b"\n",
    b"\\",
]
TEXTS += [chr(code).encode() for code in range(0x20, 0x7F)]
TEXTS += [b""] * (VOCABULARY - len(TEXTS))
WHOLE_NUMBER = answer_constraint(r"-?\d+", None, "\n\n")
BOX = re.compile(r"\\boxed\{([^}]*)\}")


@pytest.fixture(scope="module")
def guided(open_host):
    return open_host(guided_end_id=END, vocabulary=TEXTS)


def text(response):
    return b"".join(TEXTS[token] for token in response.token_ids).decode(errors="replace")


def requests(guide, count=16, **fields):
    fields = {"n": 60, "end_id": END, **fields}
    if isinstance(guide, str):
        guide = Guide(EBNF, guide)
    return [replace(sampled(seed, **fields), guide=guide) for seed in range(count)]


def test_every_box_holds_an_answer_and_the_text_around_it_is_free(guided):
    constrained = [text(r) for r in guided.run(*requests(WHOLE_NUMBER.guide()))]
    boxes = [box for each in constrained for box in BOX.findall(each)]
    assert len(boxes) >= 10
    assert all(re.fullmatch(r"-?\d+", box) for box in boxes)
    free = [text(r) for r in guided.run(*requests(None))]
    wild = [box for each in free for box in BOX.findall(each)]
    assert not all(re.fullmatch(r"-?\d+", box) for box in wild)
    letters = set("".join(constrained)) - set("\\boxed{}-0123456789\n")
    assert len(letters) > 50


def test_a_grammar_that_allows_every_token_changes_nothing(open_host):
    characters = [chr(0x4E00 + token).encode() for token in range(VOCABULARY)]
    host = open_host(guided_end_id=END, vocabulary=characters)
    anything = 'root ::= [^a]* ("a" root)?'
    assert host.run(*requests(anything)) == host.run(*requests(None))


def test_seeds_give_the_same_tokens_alone_together_and_beside_others(guided):
    wanted = requests(WHOLE_NUMBER.guide(), 8)
    alone = [guided.run(request)[0].token_ids for request in wanted]
    mixed = guided.run(*[r for pair in zip(wanted, requests(None, 8), strict=True) for r in pair])
    assert [response.token_ids for response in mixed[::2]] == alone
    free = guided.run(*requests(None, 8))
    assert [response.token_ids for response in mixed[1::2]] == [r.token_ids for r in free]


def test_a_host_that_takes_guides_answers_the_others_as_any_host(guided, open_host):
    plain = open_host()
    assert guided.run(*requests(None)) == plain.run(*requests(None))


def test_a_request_ends_at_its_stop_word_its_limit_or_its_end_token(guided):
    wanted = requests(WHOLE_NUMBER.guide(), stop_words=((4,), (10, 10)))
    reasons = {response.finish_reason for response in guided.run(*wanted)}
    assert "stop" in reasons
    guide = r'root ::= "\\boxed{" [0-9]'
    greedy = GenerateRequest(wanted[0].input_ids, 20, end_id=END, guide=Guide(EBNF, guide))
    (response,) = guided.run(greedy)
    assert re.fullmatch(r"\\boxed\{\d", text(response))
    assert response.finish_reason == "end_id"  # nothing else may follow
    digits = replace(greedy, guide=Guide(EBNF, "root ::= [0-9]*"), max_new_tokens=3)
    (response,) = guided.run(digits)
    assert response.finish_reason == ("end_id" if len(response.token_ids) < 3 else "length")


def test_a_cancelled_request_leaves_the_others_alone(guided):
    wanted = requests(WHOLE_NUMBER.guide(), 4)
    expected = [r.token_ids for r in guided.run(*wanted)]
    begun = threading.Semaphore(0)
    dropped = [
        guided.host.submit(replace(request, streaming=True), lambda response: begun.release())
        for request in requests(WHOLE_NUMBER.guide("\\box"), 4)
    ]
    assert begun.acquire(timeout=60)
    for ticket in dropped:
        guided.host.stop(ticket)
    assert [r.token_ids for r in guided.run(*wanted)] == expected
    assert guided.at_rest()


@pytest.mark.parametrize("grammar", RIGHT)
def test_what_the_check_lets_through_compiles(guided, grammar):
    (request,) = requests(grammar, 1, n=8)
    assert guided.run(request)[0].error is None


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_that_pass_their_check_compile(guided, schema):
    checked = checked_schema(json.dumps(schema))
    answers = guided.run(*requests(Guide(JSON_SCHEMA, json.dumps(checked)), 8, n=120))
    for response in answers + guided.run(*requests(schema_guide(json.dumps(checked)), 8, n=120)):
        assert response.error is None
        if response.finish_reason == "end_id" and "$ref" not in schema.get("properties", ()):
            jsonschema.validate(json.loads(text(response)), checked)


WRONG = Guide(JSON_SCHEMA, '{"type": "string", "minLength": 3, "maxLength": 2}')


def test_a_guide_that_does_not_compile_is_refused_alone(guided):
    beside = [*requests(None, 3), *requests(WHOLE_NUMBER.guide(), 3)]
    expected = guided.run(*beside)
    wrong = requests(WRONG, 2, n=20)
    for order in ([*beside[:3], *wrong], [wrong[0], *beside[:3], wrong[1]]):
        answers = dict(zip(map(id, order), guided.run(*order), strict=True))
        for request in wrong:
            assert answers[id(request)].failure is Failure.REFUSED
            assert "does not compile" in answers[id(request)].error
        assert [answers[id(request)] for request in beside[:3]] == expected[:3]
    *others, failed = guided.run(*beside, wrong[0])
    assert failed.failure is Failure.REFUSED
    assert others == expected
    assert guided.run(*beside) == expected
    assert guided.at_rest()


def test_a_grammar_is_waited_for_by_its_requests_alone(guided, monkeypatch):
    """Other requests are answered while it is compiled, and one that leaves is not waited for."""
    may_end, compilers = threading.Event(), guided.host._grammars
    compile_now = compilers._compile
    slow = 'root ::= "slow" [0-9]'

    def compile_slowly(guide):
        if guide.text == slow:
            assert may_end.wait(60)
        compile_now(guide)

    monkeypatch.setattr(compilers, "_compile", compile_slowly)
    answers = [[], []]
    wait, leave = requests(slow, 2, n=8)
    ended = threading.Semaphore(0)

    def submit(request, place):
        def take(response):
            answers[place].append(response)
            ended.release()

        return guided.host.submit(request, take)

    submit(wait, 0)
    ticket = submit(leave, 1)
    others = requests(WHOLE_NUMBER.guide("\\bo"), 4) + requests(None, 4)
    assert all(response.error is None for response in guided.run(*others))
    guided.host.stop(ticket)
    assert ended.acquire(timeout=60)
    assert not answers[0]
    assert answers[1][0].finish_reason == "cancelled"
    may_end.set()
    assert ended.acquire(timeout=60)
    assert re.fullmatch(r"slow\d", text(answers[0][0]))
    assert guided.at_rest()


def test_a_grammar_that_nobody_waits_for_any_more_is_not_compiled(guided, monkeypatch):
    may_end, begun, compilers = threading.Event(), [], guided.host._grammars
    monkeypatch.setattr(
        compilers, "_compile", lambda guide: (begun.append(guide.text), may_end.wait(60))
    )
    tickets = [
        guided.host.submit(requests(f'root ::= "q{place}"', 1)[0], lambda response: None)
        for place in range(THREADS + 3)
    ]
    assert all(response.error is None for response in guided.run(*requests(None, 2)))
    for ticket in tickets:
        guided.host.stop(ticket)
    guided.run(*requests(None, 2))
    may_end.set()
    assert all(f'root ::= "q{place}"' not in begun for place in range(THREADS, THREADS + 3))
    assert guided.at_rest()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(node=nodes("ab{}[]^-\\\"é '0"), start=st.sampled_from(["text", "escape", "box"]))
def test_every_form_compiles(guided, node, start):
    (request,) = requests(step_grammar({"answer": node}, start), 1, n=8)
    assert guided.run(request)[0].error is None


def test_a_form_is_followed_from_the_middle_of_the_word_that_opens_its_box(guided):
    guide = WHOLE_NUMBER.guide("1.\n\nso \\box")
    outputs = [text(r) for r in guided.run(*requests(guide, 64, n=8))]
    opened = [each for each in outputs if each.startswith("ed{")]
    assert all(re.match(r"ed\{-?\d*(\}|$)", each) for each in opened)
    guide = WHOLE_NUMBER.guide("\\boxed")
    assert all(re.match(r"\{-?\d*(\}|$)", text(r)) for r in guided.run(*requests(guide, 8, n=8)))
