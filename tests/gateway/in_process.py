"""A gateway's application without a server: scripted engines behind it, requests given to it."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

from tts.gateway.app import App
from tts.gateway.generation import TextGenerator
from tts.gateway.observability import Observer
from tts.gateway.safety import FilterChain
from tts.gateway.service import Service, Settings
from tts.session import AsyncSession


@asynccontextmanager
async def serving(deployment, endpoints, filters=None, **settings):
    """The application over these endpoints, for searches, scores and tokens."""
    filters = filters or FilterChain()
    async with AsyncSession(deployment, **endpoints) as session:
        yield App(
            Service(
                session,
                TextGenerator(session.models, session.replicas, filters),
                Settings(**settings),
                SimpleNamespace(required=False),
                filters,
                Observer(),
            )
        )


async def post(app, path, body):
    """Status and JSON of the answer to a request."""
    came = [{"type": "http.request", "body": json.dumps(body).encode()}]
    sent = []

    async def receive():
        if came:
            return came.pop()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "method": "POST", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(part.get("body", b"") for part in sent))
