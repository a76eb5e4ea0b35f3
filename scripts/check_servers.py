"""Check what a running server does for a search: ids, seeds, stops, cancellation and scores.

`scripts/run check_servers URL ... --tokenizer FOLDER` asks each server as a deployment would, and
prints a table; the exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from tts.base.errors import TtsError
from tts.build.spec import VerifierSpec
from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.openai.generator import OpenAIGenerator
from tts.endpoints.openai.probing import Capabilities
from tts.endpoints.openai.server import OpenAIServer
from tts.endpoints.openai.verifier import OpenAIVerifier
from tts.endpoints.shaping import FieldRefused, Shaping
from tts.endpoints.streaming import OutputEnds, StreamingGenerator, stream_of

PROMPT = "Compute 2 + 3 * 4.\n\nFirst"
LABELS = ("yes", "no")


class Failed(Exception):
    """A check found what must not be."""


class Checks:
    """The checks of one server, each of which says what it found."""

    def __init__(
        self, server: OpenAIServer, capabilities: Capabilities, tokenizer: Tokenizer
    ) -> None:
        self.server, self.capabilities, self.tokenizer = server, capabilities, tokenizer
        self.prompt = np.asarray(tokenizer.encode(PROMPT), dtype=np.int32)
        self.call = GenerateCall(self.prompt, 24, 7, 1.0, 1.0, stop_at_step=False)

    def generator(self, delimiter: str = "\n\n") -> StreamingGenerator:
        """The generator as a session opens it."""
        end, *more = self.tokenizer.eos_ids
        return OpenAIGenerator(
            self.server,
            tokenizer=self.tokenizer,
            ends=OutputEnds(end, sequence=tuple((each,) for each in more)),
            step_delimiter=delimiter,
        )

    async def ids(self) -> str:
        """Tokens that come back can be sent again: the rest is what it was."""
        call = replace(self.call, temperature=0.0, ignore_end=True)
        whole = await self.generator().generate(call)
        half = len(whole) // 2
        ids = np.concatenate((self.prompt, np.asarray(whole[:half], np.int32)))
        rest = await self.generator().generate(
            replace(call, input_ids=ids, max_new_tokens=call.max_new_tokens - half)
        )
        if len(whole) != call.max_new_tokens:
            raise Failed(f"{len(whole)} tokens in place of {call.max_new_tokens}")
        same = sum(a == b for a, b in zip(whole[half:], rest, strict=False))
        return f"{len(whole)} tokens; of {len(rest)} asked for again {same} are the same"

    async def seeds(self) -> str:
        """A seed gives the same tokens alone and beside others."""
        alone = await self.generator().generate(self.call)
        beside = [replace(self.call, seed=2**64 - 1 - seed) for seed in range(3)]
        together = await asyncio.gather(*map(self.generator().generate, [self.call, *beside]))
        others = len({tuple(each) for each in together})
        if together[0] != alone:
            raise Failed("the same seed gave other tokens beside three other requests")
        return f"the same alone and beside others; 4 seeds gave {others} outputs"

    async def shaped(self) -> str:
        """What changes the distribution is taken, unless it is refused before it is sent."""
        changes: dict[str, Any] = {
            "repetition_penalty": 1.1,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.5,
            "min_p": 0.05,
            "min_tokens": 4,
            "logit_bias": ((10, 1.0),),
        }
        accepted = []
        for name, value in changes.items():
            call = replace(self.call, shaping=Shaping(**{name: value}))
            with suppress(FieldRefused):
                await self.generator().generate(call)
                accepted.append(name)
        return ", ".join(accepted) or "none"

    async def stops(self) -> str:
        """A step ends with the token that completes its delimiter."""
        free = await self.generator().generate(self.call)
        text = self.tokenizer.decode(free)
        delimiter = text[len(text) // 2 : len(text) // 2 + 2]
        step = await self.generator(delimiter).generate(replace(self.call, stop_at_step=True))
        if delimiter not in self.tokenizer.decode(step):
            raise Failed(f"no {delimiter!r} in {self.tokenizer.decode(step)!r}")
        if delimiter in self.tokenizer.decode(step[:-1]):
            raise Failed(f"{delimiter!r} is completed before the last token")
        return f"{delimiter!r} ended it after {len(step)} of {len(free)} tokens"

    async def streams(self) -> str:
        """What is streamed is what comes at once."""
        whole = await self.generator().generate(self.call)
        pieces = [new.ids async for new in stream_of(self.generator(), self.call)]
        if [token for ids in pieces for token in ids] != whole:
            raise Failed("the streamed tokens differ from those of the whole answer")
        return f"{len(whole)} tokens in {len(pieces)} pieces"

    async def log_probs(self) -> str:
        """Each token has one."""
        call = replace(self.call, log_probs=True)
        news = [new async for new in stream_of(self.generator(), call)]
        log_probs = [each for new in news for each in new.log_probs]
        return f"{len(log_probs)}, from {min(log_probs):.2f} to {max(log_probs):.2f}"

    async def cancelled(self) -> str:
        """A request that is given up ends on the server."""
        context = self.capabilities.context or 4096
        call = replace(self.call, max_new_tokens=context - 256, ignore_end=True)
        task = asyncio.create_task(self.generator().generate(call))
        await asyncio.sleep(1.5)
        during = await self._running()
        task.cancel()
        await asyncio.wait([task])
        for _ in range(100):
            after = await self._running()
            if not after:
                break
            await asyncio.sleep(0.3)
        if during is None:
            return "not to be seen: the server has no /metrics"
        if after:
            raise Failed(f"{after:.0f} requests are still running")
        return f"{during:.0f} request running, {after:.0f} after it was given up"

    async def _running(self) -> float | None:
        names = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_proc")
        try:
            text = await metrics(self.server.http.address)
        except (TtsError, OSError):
            return None
        values = [float(x.split()[-1]) for x in text.splitlines() if x.startswith(names)]
        return sum(values) if values else None

    async def scores(self) -> str:
        """A label's share, beside that from the log-probabilities of a prompt."""
        labels = {label: 1.0 - place for place, label in enumerate(LABELS)}
        spec = VerifierSpec.model_construct(format="custom", head="labels", labels=labels)
        verifier = OpenAIVerifier(self.server, self.tokenizer, spec)
        score = (await verifier.score(ScoreCall(self.prompt))).score
        again = (await verifier.score(ScoreCall(self.prompt))).score
        return f"{LABELS[0]!r} {score:.6f}, asked again {again - score:+.1e}"


async def metrics(address: str) -> str:
    """The metrics of a server, as text."""
    async with aiohttp.ClientSession() as session, session.get(f"{address}/metrics") as answer:
        if answer.status != 200:
            raise OSError(answer.status)
        return await answer.text()


async def check(url: str, model: str | None, key: str | None, tokenizer: Tokenizer) -> bool:
    """Whether a server passes; what was found is printed."""
    async with OpenAIServer(url, model=model, api_key=key, patience_s=10) as server:
        capabilities = await server.probe()
        print(capabilities.describe())
        checks = Checks(server, capabilities, tokenizer)
        features: dict[str, tuple[bool, Callable[[], Awaitable[str]]]] = {
            "ids in, ids out": (capabilities.generates, checks.ids),
            "seeds": (capabilities.seeds_beside_others, checks.seeds),
            "penalties": (capabilities.generates, checks.shaped),
            "stop at a step": (capabilities.generates, checks.stops),
            "streams": (capabilities.streams, checks.streams),
            "log-probabilities": (capabilities.log_probs, checks.log_probs),
            "cancellation": (capabilities.generates, checks.cancelled),
            "scores": (bool(capabilities.labels), checks.scores),
        }
        passed = True
        for name, (can, run) in features.items():
            ok, result = True, "-"
            if can:
                try:
                    result = await run()
                except (Failed, TtsError) as error:
                    ok, result = False, str(error)
            passed &= ok
            print(
                f"  {name:18} {'' if not can else 'ok' if ok else 'FAILED':6} {result}", flush=True
            )
        return passed


def main() -> None:
    """Check the servers that the command line names."""
    parser = argparse.ArgumentParser(prog="check_servers", description=__doc__)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder: tokenizer.json")
    parser.add_argument("--model", help="the name, where a server has several")
    parser.add_argument("--api-key-env", help="the environment variable that holds the key")
    options = parser.parse_args()
    key = os.environ[options.api_key_env] if options.api_key_env else None
    passed = True
    for url in options.urls:
        try:
            passed &= asyncio.run(check(url, options.model, key, Tokenizer(options.tokenizer)))
        except TtsError as error:
            print(f"error: {error}", file=sys.stderr)
            passed = False
    sys.exit(not passed)


if __name__ == "__main__":
    main()
