"""its_hub's algorithms on a gateway's engines: its language model and its process reward model.

    tts gateway demo &
    pip install its_hub
    python examples/its_hub_on_gateway.py http://127.0.0.1:8080 demo "Compute 12 + 30."

its_hub generates the steps and searches; the gateway's two engines answer it over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, overload

import aiohttp
from its_hub.api import (
    AbstractLanguageModel,
    AbstractProcessRewardModel,
    ChatMessage,
    ChatMessages,
)
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
from its_hub.core.lms.step_generation import StepGeneration


class Gateway:
    """Posts to one gateway, on a connection for each call: its_hub runs loops of its own."""

    def __init__(self, address: str, model: str, api_key: str = "none") -> None:
        self._address = address.rstrip("/")
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"}

    async def _post(self, path: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answers to several requests at a time; raises aiohttp.ClientResponseError."""
        async with aiohttp.ClientSession(self._address, headers=self._headers) as session:

            async def one(body: dict[str, Any]) -> Any:
                said = {name: value for name, value in body.items() if value is not None}
                async with session.post(path, json={"model": self._model, **said}) as answer:
                    answer.raise_for_status()
                    return await answer.json()

            return list(await asyncio.gather(*map(one, bodies)))


class GatewayLanguageModel(Gateway, AbstractLanguageModel):  # type: ignore[misc]
    """Generates answers; a last message of the assistant is continued, as step generation needs."""

    async def agenerate(
        self,
        messages: list[ChatMessage] | list[list[ChatMessage]],
        stop: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """See AbstractLanguageModel."""
        single = isinstance(messages[0], ChatMessage)
        chats: Any = [messages] if single else messages
        warmth = kwargs.pop("temperature", None)
        each = warmth if isinstance(warmth, list) else [warmth] * len(chats)
        bodies = []
        for chat, temperature in zip(chats, each, strict=True):
            goes_on = chat[-1].role == "assistant"
            bodies.append(
                {
                    **kwargs,
                    "messages": [message.to_dict() for message in chat],
                    "stop": stop,
                    "temperature": temperature,
                    "continue_final_message": goes_on,
                    "add_generation_prompt": not goes_on,
                }
            )
        answers = await self._post("/v1/chat/completions", bodies)
        said = [answer["choices"][0]["message"] for answer in answers]
        return said[0] if single else said

    async def agenerate_single(
        self, messages: list[ChatMessage], stop: str | None = None, **kwargs: Any
    ) -> Any:
        """See AbstractLanguageModel."""
        return await self.agenerate(messages, stop, **kwargs)


class GatewayRewardModel(Gateway, AbstractProcessRewardModel):  # type: ignore[misc]
    """The score of an answer is that of its last step."""

    @overload
    async def ascore(self, prompt_or_messages: Any, steps: str) -> float: ...
    @overload
    async def ascore(self, prompt_or_messages: Any, steps: list[str]) -> list[float]: ...

    async def ascore(self, prompt_or_messages: Any, steps: str | list[str]) -> Any:
        """See AbstractProcessRewardModel; `steps` are answers, as its algorithms call it."""
        chat = ChatMessages.from_prompt_or_messages(prompt_or_messages).to_chat_messages()
        question = [{"role": each.role, "content": each.extract_text_content()} for each in chat]
        bodies = [
            {"messages": [*question, {"role": "assistant", "content": answer}]}
            for answer in ([steps] if isinstance(steps, str) else steps)
        ]
        scored = await self._post("/pooling", bodies)
        scores = [answer["data"][0]["data"][-1][1] for answer in scored]
        return scores[0] if isinstance(steps, str) else scores

    def score(self, prompt_or_messages: Any, steps: Any) -> Any:
        """See AbstractProcessRewardModel."""
        return asyncio.run(self.ascore(prompt_or_messages, steps))


def main() -> None:
    """Search for an answer and print it."""
    parser = argparse.ArgumentParser(description="its_hub's algorithms on a gateway's engines.")
    parser.add_argument("address", help="such as http://127.0.0.1:8080")
    parser.add_argument("model", help="the deployment's name")
    parser.add_argument("question")
    parser.add_argument("--algorithm", choices=("beam", "particles"), default="beam")
    parser.add_argument("--budget", type=int, default=8, help="answers that are generated")
    parser.add_argument("--steps", type=int, default=20, help="of an answer at most")
    parser.add_argument("--api-key", default="none")
    given = parser.parse_args()
    steps = StepGeneration(given.steps, "\n\n", stop_token=r"\boxed")
    model = GatewayLanguageModel(given.address, given.model, given.api_key)
    verifier = GatewayRewardModel(given.address, given.model, given.api_key)
    algorithm = (
        BeamSearch(steps, verifier, beam_width=2)
        if given.algorithm == "beam"
        else ParticleFiltering(steps, verifier)
    )
    found = asyncio.run(algorithm.ainfer(model, given.question, given.budget))
    print(found["content"])


if __name__ == "__main__":
    main()
