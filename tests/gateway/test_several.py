"""Several deployments behind one address, and what may call it."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import answered, post

from tts.build.errors import ConfigError
from tts.build.tokenizer import Tokenizer
from tts.gateway.answer.generation import TextGenerator
from tts.gateway.app import App
from tts.gateway.http_server import _names, unserved_models
from tts.gateway.ledger import Ledger
from tts.gateway.observability import Recorder, read_requests
from tts.gateway.safety import FilterChain, KeyLimits, KeyStore
from tts.gateway.service import Service, Settings
from tts.session import AsyncSession

ASKED = [{"role": "user", "content": "Compute 1 + 1."}]


@pytest.fixture
def deployments(tiny_deployment):
    return tiny_deployment, tiny_deployment.model_copy(update={"name": "other"})


@pytest.fixture
def both(deployments, tokenizer_folder):
    """An application over two deployments, of which the first says 1 and the second 22."""
    tokenizer = Tokenizer(tokenizer_folder)

    @asynccontextmanager
    async def opened(recorder=None):
        recorder = recorder or Recorder()
        services = []
        sessions = [
            AsyncSession(
                deployment,
                generator=ScriptedGenerator([tokenizer.encode(word)], tokenizer.encode("\n\n")),
                verifier=ScriptedVerifier(),
            )
            for deployment, word in zip(deployments, ("1", "22"), strict=True)
        ]
        filters, keyring = FilterChain(), SimpleNamespace(required=False)
        async with sessions[0], sessions[1]:
            for session in sessions:
                generator = TextGenerator(session.models, session.replicas, filters)
                of_all = filters, recorder
                Service(session, generator, Settings(), keyring, *of_all, services=services)
            yield App(services[0])

    return opened


def test_keys_for_models_that_nobody_serves_are_told(both, tmp_path):
    store = KeyStore(tmp_path / "gateway" / "gateway.db")
    keys = {
        name: store.create(name, KeyLimits(), models=models)[1]
        for name, models in (
            ("right", ("tiny", "other:*", "tiny:greedy")),
            ("wrong", ("tiny", "tny", "other:greedily")),
            ("gone", ("tny",)),
        )
    }
    store.revoke("gone")

    async def told():
        async with both() as app:
            return list(unserved_models(store.all(), app._service.services))

    wrong = keys["wrong"]
    assert asyncio.run(told()) == [(wrong, "tny"), (wrong, "other:greedily")]


def test_the_models_name_chooses_the_deployment(both):
    async def go():
        async with both() as app:
            _, listed = await post(app, "/v1/models", None, "GET")
            names = [model["id"] for model in listed["data"]]
            assert {"tiny", "tiny:beam-search", "other", "other:beam-search"} <= set(names)
            for name, word in (("tiny", "1"), ("other", "22")):
                body = {"model": name, "messages": ASKED, "max_tokens": 4}
                status, answer = await post(app, "/v1/chat/completions", body)
                assert status == 200
                assert word in answer["choices"][0]["message"]["content"]
                search = {"model": f"{name}:best-of-n", "messages": ASKED, "tts": {"n": 2}}
                status, answer = await post(app, "/v1/chat/completions", search)
                assert (status, answer["model"]) == (200, f"{name}:best-of-n")
                said = [*ASKED, {"role": "assistant", "content": "2"}]
                status, _ = await post(app, "/pooling", {"model": name, "messages": said})
                assert status == 200
                for path in ("/tokenize", "/detokenize"):
                    body = {"model": name, "prompt": "1", "tokens": [1]}
                    assert (await post(app, path, body))[0] == 200
                assert (await post(app, f"/v1/models/{name}:mcts", None, "GET"))[0] == 200
            for body, status in (
                ({"model": "none", "messages": ASKED}, 404),
                ({"model": 3}, 400),
                ([], 400),
            ):
                assert (await post(app, "/v1/chat/completions", body))[0] == status
            assert (await post(app, "/ready", None, "GET"))[0] == 200
            _, _, text = await answered(app, "/metrics")
            assert b'model="tiny"' in text
            assert b'model="other"' in text

    asyncio.run(go())


def test_the_requests_to_each_deployment_are_found_in_the_log(both, tmp_path):
    file = tmp_path / "gateway" / "gateway.db"
    recorder = Recorder(Ledger(file))

    async def go():
        async with both(recorder) as app:
            for name in ("other", "other", "tiny"):
                await post(app, "/v1/completions", {"model": name, "prompt": "1"})
            await post(app, "/tokenize", {"prompt": "1"})

    asyncio.run(go())
    recorder.close()
    models = [[record.model for record in read_requests(file, name)] for name in ("tiny", "other")]
    assert models == [["tiny"], ["other", "other"]]
    assert len(list(read_requests(file))) == 4


def test_a_gateway_is_not_ready_while_one_of_them_is_not(both, deployments):
    async def go():
        async with both() as app:
            service = app._service.of_model("other")
            service.session.replicas.some_work = lambda: False
            status, answer = await post(app, "/ready", None, "GET")
            assert status == 503
            assert "No server of other works" in answer["error"]["message"]

    asyncio.run(go())


def test_what_cannot_be_served_together_says_so(deployments):
    tiny, _ = deployments
    with pytest.raises(ConfigError, match="Two deployments are called tiny"):
        _names([tiny, tiny], alone=False)
    with pytest.raises(ConfigError, match="are for one deployment"):
        _names(deployments, alone=True)
    assert _names([tiny], alone=True) == ["tiny"]


@pytest.mark.parametrize(
    "path", ["/", "/page/page.js", "/metrics", "/v1/models", "/health", "/none"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_whoever_calls_the_gateway_by_another_name_gets_nothing(both, path, method):
    async def go():
        async with both() as app:
            status, _, said = await answered(app, path, None, method, host="evil.example:8080")
            assert status == 403
            if method != "HEAD":
                assert json.loads(said)["error"]["code"] == "host_not_allowed"

    asyncio.run(go())
