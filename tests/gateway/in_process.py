"""A gateway's application without a server: engines of a test behind it, requests given to it.

A request is a path, perhaps a body (without one it is a GET), and perhaps headers.
"""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

from tts.endpoints.streaming import NewTokens
from tts.gateway.app import App
from tts.gateway.call import Service, Settings
from tts.gateway.exchange import ON_LEAVE
from tts.gateway.observability.recorder import Recorder
from tts.gateway.output.generation import TextGenerator
from tts.gateway.safety.filters import FilterChain
from tts.gateway.safety.keys import ApiKey
from tts.gateway.safety.limits import KeyLimits
from tts.session import AsyncSession

CHAT, TEXT, RESPONSES, POOLING = (
    *("/v1/chat/completions", "/v1/completions"),
    *("/v1/responses", "/pooling"),
)
KEY = {"authorization": "Bearer k"}


def service_of(session, filters=None, keyring=None, recorder=None, services=None, **settings):
    """The service of an open session; `services`: those of others behind the same address."""
    filters = filters or FilterChain()
    return Service(
        session,
        TextGenerator(session.models, session.replicas, filters),
        Settings(**settings),
        keyring or SimpleNamespace(required=False),
        filters,
        recorder or Recorder(),
        services=[] if services is None else services,
    )


@asynccontextmanager
async def serving(deployment, endpoints, **options):
    """The application over these endpoints, for searches, scores and tokens."""
    async with AsyncSession(deployment, **endpoints) as session:
        yield App(service_of(session, **options))


def key_ring(limits=None, **fields):
    """A ring in which every request finds a key with these limits; it is called k."""
    key = ApiKey("k", "k", limits or KeyLimits(), 0.0, None, **fields)
    return SimpleNamespace(required=True, find=lambda said: key)


async def answered(app, path, body=None, headers=None, method=None):
    """Status, headers and body of the answer to a request."""
    came = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive():
        if came:
            return came.pop()
        await asyncio.Event().wait()

    return await exchanged(
        app, path, receive, headers, method or ("GET" if body is None else "POST")
    )


async def exchanged(app, path, receive, headers=None, method="POST"):
    """The same of a request that comes, and ends, as `receive` says."""
    sent, state, watches = [], {}, []

    async def watched():
        while (await receive())["type"] != "http.disconnect":
            pass
        state[ON_LEAVE]()

    async def received():
        message = await receive()
        if not message.get("more_body"):
            watches.append(asyncio.ensure_future(watched()))
        return message

    async def send(message):
        sent.append(message)

    sent_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "path": path, "method": method, "headers": sent_headers}
    scope |= {"client": ("192.0.2.7", 4711), "state": state}
    await app(scope, received, send)
    for watch in watches:
        watch.cancel()
    if not sent:
        return None
    said = b"".join(part.get("body", b"") for part in sent)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, said


async def post(app, path, *request):
    """Status and JSON of the answer to a request, or the text of its events."""
    status, _, said = await answered(app, path, *request)
    said = said.decode()
    return status, said if said.startswith(("data:", "event:", ":")) else json.loads(said)


def run(work, deployment, endpoints, **options):
    """The result of work with the application, which must not take long."""

    async def go():
        async with serving(deployment, endpoints, **options) as app:
            return await work(app)

    return asyncio.run(asyncio.wait_for(go(), 60))


def answers(deployment, endpoints, *requests, whole=False, **options):
    """What `post` gives of requests, one after the other; `whole`: what `answered` does."""

    async def work(app):
        return [await (answered if whole else post)(app, *request) for request in requests]

    return run(work, deployment, endpoints, **options)


def chunks_of(said):
    """What the events of a stream hold, but for its end."""
    data = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: {")]
    return list(map(json.loads, data))


def choice_of(answer):
    """The message and the end of a chat's answer, whole or streamed."""
    status, said = answer
    assert status == 200, said
    if isinstance(said, dict):
        (choice,) = said["choices"]
        return choice["message"], choice["finish_reason"]
    message, finish = {"role": None, "content": None}, None
    for choice in (choice for chunk in chunks_of(said) for choice in chunk["choices"]):
        delta, finish = choice["delta"], choice["finish_reason"] or finish
        message["role"] = delta.get("role") or message["role"]
        if delta.get("content"):
            message["content"] = (message["content"] or "") + delta["content"]
        for call in delta.get("tool_calls", ()):
            assert call.pop("index") == len(message.setdefault("tool_calls", []))
            message["tool_calls"].append(call)
    return message, finish


def roomy(deployment, guided=True):
    """A deployment with room for what chats with tools hold, whose generator follows guides."""
    update = {
        role: getattr(deployment, role).model_copy(update={"max_seq_len": 4096, **more})
        for role, more in (("generator", {"guided_decoding": guided}), ("verifier", {}))
    }
    return deployment.model_copy(update=update)


class Streams:
    """A generator whose `stream` is its own."""

    async def generate(self, call):
        return [token async for new in self.stream(call) for token in new.ids]


class Says(Streams):
    """A generator that says what a function makes of its prompt and its place among samples."""

    def __init__(self, tokenizer, say):
        self.tokenizer, self.say, self.prompts, self.guides = tokenizer, say, [], []
        self.seen = Counter()

    async def stream(self, call):
        prompt = self.tokenizer.spelled(call.input_ids.tolist())
        self.prompts.append(prompt)
        self.guides.append(call.guide)
        place = self.seen[prompt]
        self.seen[prompt] += 1
        ids = self.tokenizer.encode(self.say(prompt, place))[: call.max_new_tokens]
        for at in range(0, len(ids), 3):
            yield NewTokens(ids[at : at + 3], [], at + 3 >= len(ids))
        if not ids:
            yield NewTokens([], [], final=True)


class Kept(Recorder):
    """A recorder that keeps the records of requests that have ended."""

    def __init__(self, **options):
        super().__init__(**options)
        self.ended = []

    def end(self, record):
        self.ended.append(record)
        super().end(record)
