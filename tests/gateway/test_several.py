"""Several deployments behind one address."""

import asyncio
import re
from contextlib import AsyncExitStack

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import CHAT, POOLING, answered, post, service_of

from tts.base.errors import ConfigError
from tts.gateway import http_server
from tts.gateway.app import App
from tts.gateway.http_server import _names
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.record import read_requests
from tts.gateway.observability.recorder import Recorder
from tts.gateway.safety.keys import KeyStore
from tts.gateway.safety.limits import KeyLimits
from tts.session import AsyncSession

ASKED = [{"role": "user", "content": "Compute 1 + 1."}]


@pytest.fixture
def both(tiny_deployment, tokenizer):
    """Does work with an application over two deployments; the first says 1, the second 22."""

    def worked(work, recorder=None):
        async def go():
            services = []
            async with AsyncExitStack() as stack:
                for name, word in (("tiny", "1"), ("other", "22")):
                    writer = ScriptedGenerator([tokenizer.encode(word)], tokenizer.encode("\n\n"))
                    session = AsyncSession(
                        tiny_deployment.model_copy(update={"name": name}),
                        generator=writer,
                        verifier=ScriptedVerifier(),
                    )
                    await stack.enter_async_context(session)
                    service_of(session, recorder=recorder, services=services)
                return await work(App(services[0]), services)

        return asyncio.run(go())

    return worked


def test_keys_for_models_that_nobody_serves_are_told_once_and_new_ones_too(both, file, monkeypatch):
    monkeypatch.setattr(http_server, "KEYS_S", 0.01)
    store = KeyStore(file)
    for name, models in (
        ("right", ("tiny", "other:*", "tiny:greedy")),
        ("wrong", ("tiny", "tny", "other:greedily")),
        ("gone", ("tny",)),
    ):
        store.create(name, KeyLimits(), models=models)
    store.revoke("gone")

    async def told(app, services):
        said = []
        naming = http_server.name_unserved(
            lambda: dict(enumerate(store.all())), services, said.append
        )
        running = asyncio.ensure_future(naming)
        for count in (2, 3):
            while len(said) < count:
                await asyncio.sleep(0.01)
            store.create(f"late {count}", KeyLimits(), models=("demo",) if count == 2 else ())
        running.cancel()
        return re.findall(r"\(([^)]+)\) is for the model '(\S+)'", "\n".join(said))

    assert both(told) == [("wrong", "tny"), ("wrong", "other:greedily"), ("late 2", "demo")]


def test_the_models_name_chooses_the_deployment(both):
    async def work(app, services):
        _, listed = await post(app, "/v1/models")
        names = [model["id"] for model in listed["data"]]
        assert {"tiny", "tiny:beam-search", "other", "other:beam-search"} <= set(names)
        for name, word in (("tiny", "1"), ("other", "22")):
            body = {"model": name, "messages": ASKED, "max_tokens": 4}
            status, answer = await post(app, CHAT, body)
            assert status == 200
            assert word in answer["choices"][0]["message"]["content"]
            search = {"model": f"{name}:best-of-n", "messages": ASKED, "tts": {"n": 2}}
            status, answer = await post(app, CHAT, search)
            assert (status, answer["model"]) == (200, f"{name}:best-of-n")
            said = [*ASKED, {"role": "assistant", "content": "2"}]
            for path, body in (
                (POOLING, {"model": name, "messages": said}),
                ("/tokenize", {"model": name, "prompt": "1"}),
                ("/detokenize", {"model": name, "tokens": [1]}),
                (f"/v1/models/{name}:mcts", None),
            ):
                assert (await post(app, path, body))[0] == 200
        for body in ({"model": 3}, []):
            assert (await post(app, CHAT, body))[0] == 400
        assert (await post(app, CHAT, {"model": "none", "messages": ASKED}))[0] == 404
        _, _, text = await answered(app, "/metrics")
        assert b'model="tiny"' in text
        assert b'model="other"' in text

    both(work)


def test_the_requests_to_each_deployment_are_found_in_the_log(both, file):
    recorder = Recorder(Ledger(file))

    async def work(app, services):
        for name in ("other", "other", "tiny"):
            await post(app, "/v1/completions", {"model": name, "prompt": "1"})
        await post(app, "/tokenize", {"prompt": "1"})

    both(work, recorder)
    recorder.close()
    models = [[record.model for record in read_requests(file, name)] for name in ("tiny", "other")]
    assert models == [["tiny"], ["other", "other"]]
    assert len(list(read_requests(file))) == 4


def test_a_gateway_is_not_ready_while_one_of_them_is_not(both):
    async def work(app, services):
        assert (await post(app, "/ready"))[0] == 200
        services[1].session.replicas.some_work = lambda: False
        status, answer = await post(app, "/ready")
        assert status == 503
        assert "No server of other works" in answer["error"]["message"]

    both(work)


def test_what_cannot_be_served_together_says_so(tiny_deployment):
    other = tiny_deployment.model_copy(update={"name": "other"})
    with pytest.raises(ConfigError, match="Two deployments are called tiny"):
        _names([tiny_deployment, tiny_deployment], alone=False)
    with pytest.raises(ConfigError, match="are for one deployment"):
        _names([tiny_deployment, other], alone=True)
    assert _names([tiny_deployment], alone=True) == ["tiny"]
