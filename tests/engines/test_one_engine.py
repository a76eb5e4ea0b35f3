"""One engine in both roles: it writes what a generator writes, and scores by graded labels."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from tests.build.openvino_build import logits
from tests.engines.conftest import GRADES, same_as_generator
from tests.engines.host_requests import prompt, sampled
from tests.engines.test_guided_host import END, TEXTS

from tts.base import paths
from tts.base.errors import BuildError, RequestError
from tts.build.manifest import read_engine_config
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.streaming import OutputEnds
from tts.engines.generate_request import check_request, score_request
from tts.engines.opening import opening_of
from tts.engines.responses import first_probability
from tts.engines.wire import EBNF, Guide
from tts.fleet.connecting import require_engines, triton_connection
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

PROMPTS = [prompt(seed, 20 + seed) for seed in range(12)]
SHAPES = (
    {},
    {"top_p": 0.8},
    {"top_k": 5},
    {"min_p": 0.05, "temperature": 3.0},
    {"repetition_penalty": 1.3, "presence_penalty": 0.5},
    {"guide": Guide(EBNF, 'root ::= [0-9]+ "\\\\boxed{"'), "end_id": END},
)


@pytest.fixture(scope="module")
def one(open_host, one_engine):
    return open_host(of=one_engine, guided_end_id=END, vocabulary=TEXTS)


def test_it_writes_bit_for_bit_what_the_generator_writes(one_engine, pair, open_host):
    requests = [
        structs.replace(sampled(seed, return_log_probs=True), **shape)
        for seed in range(4)
        for shape in SHAPES
    ]
    texts = []
    for deployment in (one_engine, pair):
        host = open_host(of=deployment, guided_end_id=END, vocabulary=TEXTS)
        # whose prefixes a guided request finds, and so the last bits, depends on when its grammar
        # is compiled: here before all others
        host.run(structs.replace(sampled(99), **SHAPES[-1]))
        texts.append(host.run(*requests))
    assert texts[0] == texts[1]


def test_scores_are_those_of_all_logits_also_among_what_it_writes(one, pair):
    written = [sampled(seed, n=12) for seed in range(12)]
    scored = [score_request(ids) for ids in PROMPTS]
    alone = one.run(*written)
    mixed = one.run(*(each for both in zip(written, scored, strict=True) for each in both))
    assert [each.token_ids for each in mixed[::2]] == [each.token_ids for each in alone]
    folder = paths.engine_dir(pair.name, "generator")
    tokens = list(read_engine_config(paths.engine_dir("one", "generator")).label_token_ids)
    for ids, response in zip(PROMPTS, mixed[1::2], strict=True):
        row = logits(folder, ids[None])[0, -1, tokens].astype(np.float64)
        shares = np.exp(row - row.max())
        expected = shares @ list(GRADES.values()) / shares.sum()
        assert first_probability(response.label_logits) == pytest.approx(expected, abs=1e-5)
        assert response.token_ids[0] in (tokens[0], tokens[-1])


def test_a_score_that_asks_for_more_than_its_labels_is_refused(one_engine):
    limits = opening_of(one_engine, "generator").limits
    for more in (
        {"repetition_penalty": 1.5},
        {"max_new_tokens": 2},
        {"guide": SHAPES[-1]["guide"]},
    ):
        with pytest.raises(RequestError):
            check_request(structs.replace(score_request(PROMPTS[0]), **more), limits)


def test_other_labels_need_another_build(pair, one_engine):
    other = same_as_generator(pair, {"w7": 1.0, "-": 0.0})
    with pytest.raises(BuildError, match=r"generator .* labels was .* and is now"):
        require_engines(other, ())
    require_engines(one_engine, ())
    with pytest.raises(BuildError, match="has not been built"):
        require_engines(other.model_copy(update={"name": "another"}), ("127.0.0.1:1",))


@pytest.mark.server
def test_a_server_of_one_engine_writes_and_scores_through_one_model(one, one_engine):
    call = GenerateCall(PROMPTS[0].astype(np.int32), 12, 5, 1.0, 1.0, False)

    async def ask(address):
        async with triton_connection(one_engine, address) as connection:
            generator, verifier = connection.generator(OutputEnds(2)), connection.verifier()
            return await asyncio.gather(
                *(verifier.score(ScoreCall(ids.astype(np.int32))) for ids in PROMPTS),
                *(generator.generate(replace(call, seed=seed)) for seed in range(12)),
                verifier.score(ScoreCall(np.int32([1000]))),
                return_exceptions=True,
            )

    with start_server(Triton(one_engine)) as server:
        *answers, refused = asyncio.run(ask(server.addresses.grpc))
    scores = [response.label_logits for response in one.run(*map(score_request, PROMPTS))]
    for found, expected in zip(answers[:12], scores, strict=True):
        assert found.score == pytest.approx(first_probability(expected), abs=1e-5)
    requests = [
        structs.replace(sampled(seed, n=12), input_ids=PROMPTS[0], end_id=2) for seed in range(12)
    ]
    assert answers[12:] == [response.token_ids for response in one.run(*requests)]
    assert "input_ids holds the id 1000" in str(refused)
