"""Whether a server reuses prefixes, by what its answers say."""

import pytest
from tests.endpoints.openai.stand_in import CONTEXT, StandIn

from tts.endpoints.openai.server import OpenAIServer, cached_tokens, prefix_reuse

pytestmark = pytest.mark.anyio


class Caching(StandIn):
    """Says how many tokens of a prompt it had seen before; of no more than `most`."""

    most = CONTEXT
    prompts = ()

    def _vllm(self, ids, body):
        shared = [sum(a == b for a, b in zip(ids, each, strict=False)) for each in self.prompts]
        self.prompts = (*self.prompts, ids)
        answer = super()._vllm(ids, body)
        found = min(self.most, max(shared, default=0))
        if isinstance(answer, dict):
            answer["usage"] = {"prompt_tokens_details": {"cached_tokens": found}}
        return answer


@pytest.mark.parametrize(("most", "reused"), [(CONTEXT, True), (16, False)])
async def test_a_server_that_counts_cached_tokens_is_believed(most, reused):
    stand_in = Caching()
    async with stand_in as url, OpenAIServer(url) as server:
        await server.probe()
        stand_in.most = most
        found = await prefix_reuse(server, CONTEXT)
    assert found.reused is reused
    assert found.why.endswith("tokens came from its cache")


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 3}}}, 3),
        ({"usage": {"prompt_tokens_details": None}}, None),
        ({"meta_info": {"cached_tokens": 0}}, 0),
        ({"timings": {"cache_n": 7}}, 7),
        ([], None),
    ],
)
def test_each_kind_of_server_says_it_in_a_field_of_its_own(answer, tokens):
    assert cached_tokens(answer) == tokens
