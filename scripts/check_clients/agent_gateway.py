"""A gateway whose model is scripted: it adds, then doubles, then answers, or writes a JSON object.

What the bundled models cannot do, which know arithmetic alone. One of four candidates of a search
makes a mistake, which votes and the verifier are there to outweigh. All but the engines is what
`tts gateway` runs.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import GenerateCall
from tts.endpoints.streaming import NewTokens, StreamingGenerator
from tts.gateway.call import Service, Settings
from tts.gateway.draining import Drain
from tts.gateway.http_server import Listen, answer, bind
from tts.gateway.observability.recorder import Recorder
from tts.gateway.output.generation import TextGenerator
from tts.gateway.safety.filters import FilterChain
from tts.session import AsyncSession

OBJECT = '{"value": 42, "unit": "m"}'
RIGHT = {"add": '{"a": 2, "b": 3}', "double": '{"n": 5}'}
WRONG = {"add": '{"a": 9, "b": 9}', "double": '{"n": 9}'}
FORCED = "<tool_call>\n"


class Agent(StreamingGenerator):
    """The scripted model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """What it says, some tokens at a time."""
        prompt = self._tokenizer.spelled(call.input_ids.tolist())
        searched = call.temperature != 1.0  # which is a plain request's
        ids = self._tokenizer.encode(reply(prompt, wrong=searched and call.seed % 4 == 0))
        for at in range(0, len(ids), 5):
            yield NewTokens(ids[at : at + 5], final=at + 5 >= len(ids))


def reply(prompt: str, *, wrong: bool) -> str:
    """The next message of the assistant."""
    results = prompt.count("<|user|>tool: ")
    calls = WRONG if wrong else RIGHT
    if "You have these tools" not in prompt:
        return OBJECT
    if results > 1:
        return f"The answer is {9 if wrong else 10}."
    name = ("add", "double")[results]
    is_begun = prompt.endswith(FORCED)
    call = f'{{"name": "{name}", "arguments": {calls[name]}}}\n</tool_call>'
    return call if is_begun else FORCED + call


def score(question: str, steps: Sequence[str]) -> float:
    """The verifier: it knows what is wrong."""
    return 0.1 if "9" in steps[-1] else 0.9


async def serve(file: str, port: str) -> None:
    """Serve until SIGTERM."""
    deployment = load_deployment(file)
    tokenizer = Tokenizer(deployment.generator.tokenizer_folder)
    drain, filters, listen = Drain(5), FilterChain(), Listen(port=int(port))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain.begin)
    keyring: Any = SimpleNamespace(required=False)
    async with AsyncSession(deployment, generator=Agent(tokenizer), verifier=score) as session:
        generator = TextGenerator(session.models, session.replicas, filters)
        service = Service(session, generator, Settings(), keyring, filters, Recorder(), drain)
        await answer(service, listen, bind(listen), say, asyncio.Event().wait)  # type: ignore[arg-type]


def say(line: str) -> None:
    """A line to whoever has started it."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
