"""A gateway's application without a server: scripted engines behind it, requests given to it."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

from tts.gateway.answer.generation import TextGenerator
from tts.gateway.app import App
from tts.gateway.observability import Recorder
from tts.gateway.safety import FilterChain
from tts.gateway.service import Service, Settings
from tts.session import AsyncSession


@asynccontextmanager
async def serving(deployment, endpoints, filters=None, keyring=None, recorder=None, **settings):
    """The application over these endpoints, for searches, scores and tokens."""
    filters = filters or FilterChain()
    async with AsyncSession(deployment, **endpoints) as session:
        yield App(
            Service(
                session,
                TextGenerator(session.models, session.replicas, filters),
                Settings(**settings),
                keyring or SimpleNamespace(required=False),
                filters,
                recorder or Recorder(),
            )
        )


async def post(app, path, body, method="POST", **headers):
    """Status and JSON of the answer to a request, or the text of its events."""
    status, _, said = await answered(app, path, body, method, **headers)
    said = said.decode()
    return status, said if said.startswith(("data:", "event:", ":")) else json.loads(said)


async def answered(app, path, body=None, method="GET", **headers):
    """Status, headers and body of the answer to a request."""
    came = [{"type": "http.request", "body": json.dumps(body).encode()}]
    sent = []

    async def receive():
        if came:
            return came.pop()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    sent_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": sent_headers}
    await app(scope, receive, send)
    said = b"".join(part.get("body", b"") for part in sent)
    answers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answers, said
