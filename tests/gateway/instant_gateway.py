"""A gateway over scripted engines: `python -m tests.gateway.instant_gateway DEPLOYMENT.json`.

All but the engines is what `tts gateway` runs: the server, keys, the log of requests, draining.
"""

import asyncio
import signal
import sys
from pathlib import Path

from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.build.spec import Deployment
from tts.gateway.answer.generation import TextGenerator
from tts.gateway.database import database_file
from tts.gateway.draining import Drain
from tts.gateway.http_server import Listen, answer, bind
from tts.gateway.ledger import Ledger
from tts.gateway.observability import Recorder
from tts.gateway.safety import FilterChain, Keyring
from tts.gateway.service import Service, Settings
from tts.session import AsyncSession


async def serve(deployment):
    ledger = Ledger(database_file())
    keyring, observer = Keyring(ledger.keys), Recorder(ledger)
    drain, filters, listen = Drain(30), FilterChain(), Listen(port=0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain.begin)
    endpoints = {"generator": ScriptedGenerator([[7]], [8]), "verifier": ScriptedVerifier()}
    async with AsyncSession(deployment, **endpoints) as session:
        generator = TextGenerator(session.models, session.replicas, filters)
        service = Service(session, generator, Settings(), keyring, filters, observer, drain)
        await answer(service, listen, bind(listen), say, asyncio.Event().wait)
    observer.close()


def say(line):
    print(line, flush=True)


if __name__ == "__main__":
    asyncio.run(serve(Deployment.model_validate_json(Path(sys.argv[1]).read_text())))
