"""A gateway in front of several servers: one is killed under load, one added, nothing is lost."""

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tests.end_to_end.gateways import client, gateway

from tts.build.spec import load_deployment
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server

SUMS = [f"Compute {a} + {b}." for a in (12, 17, 23, 31) for b in range(10, 20)]


@pytest.fixture
def servers(tts, server, new_home, monkeypatch):
    """One to be killed, one of all tests, and one to be added."""

    def started(home):
        monkeypatch.setenv("TTS_HOME", str(home))
        return start_server(Triton(load_deployment("demo")))

    with started(tts.home) as first, started(new_home()) as third:
        yield first, server[0], third


def answer(api, question):
    """The text of a streamed answer, how it ended, and how many tokens it is said to have."""
    stream = api.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": question}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, finish, usage = "", [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
    return text, finish, usage.completion_tokens


def search(api, question):
    answer = api.chat.completions.create(
        model="demo:beam-search",
        messages=[{"role": "user", "content": question}],
        extra_body={"tts": {"n": 16}},
    )
    return answer.tts["tree_digest"]


def test_a_server_that_is_killed_under_load_loses_no_request(tts, servers, tmp_path):
    first, second, third = servers
    file = tmp_path / "servers"

    def use(*used):
        new = tmp_path / "new"
        new.write_text("".join(f"{server.addresses.grpc}\n" for server in used))
        new.replace(file)

    use(first, second)
    with gateway(tts, "--endpoints-file", file) as address, ThreadPoolExecutor(24) as threads:
        api = client(address)
        undisturbed = [answer(api, question) for question in SUMS[:8]]
        digest = search(api, SUMS[0])
        answers = [threads.submit(answer, api, question) for question in SUMS * 2]
        searches = [threads.submit(search, api, SUMS[0]) for _ in range(2)]
        answers[8].result()
        psutil.Process(first.state.server.pid).kill()
        answers[40].result()
        use(second, third)
        found = [each.result() for each in answers]
        assert found[:8] == found[40:48] == undisturbed
        assert all(finish == ["stop"] for _, finish, _ in found)
        assert {each.result() for each in searches} == {digest}
