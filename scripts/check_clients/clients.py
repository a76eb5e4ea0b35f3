"""What each client does with a gateway: `main()` in an environment with the clients, without tts.

Arguments: the addresses of the demo pair's gateway and of the scripted model's. It prints a line of
JSON for each check: client, version, feature, model and result.
"""
# mypy: ignore-errors
# ruff: noqa: D103

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import sys
import traceback
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": "Compute 12 + 30."}]
TASK = "Add 2 and 3, then double the sum."
CHECKS: list[tuple[str, str, str, Callable[[str, str], str]]] = []
DEMO, AGENT = "demo pair", "scripted model"
MOST = 400
"""Tokens of an answer of the demo pair, whose texts may wander."""


class Length(BaseModel):
    """A length."""

    value: int = Field(ge=0, le=100)
    unit: Literal["m", "km"]


def check(client: str, feature: str, models: str, *names: str):
    """Register a check, once for each model's name; it takes the address and the name."""

    def register(function):
        for name in names:
            kind = name.partition(":")[2] or "plain"
            CHECKS.append(
                (client, f"{feature}, {kind}", models, lambda url, f=function, n=name: f(url, n))
            )
        return function

    return register


DEMO_MODELS = ("demo", "demo:best-of-n")
AGENT_MODELS = ("agent", "agent:majority-vote", "agent:best-of-n")


def search(model: str) -> dict:
    """The fields of a search."""
    return {"tts": {"n": 8}} if ":" in model else {}


def openai_client(url: str):
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@check("openai", "chat.completions.parse", DEMO, *DEMO_MODELS)
def parse(url, model):
    said = openai_client(url).chat.completions.parse(
        model=model, messages=QUESTION, response_format=Length, extra_body=search(model)
    )
    return repr(said.choices[0].message.parsed)


@check("openai", "chat.completions.stream with a schema", DEMO, *DEMO_MODELS)
def stream(url, model):
    with openai_client(url).chat.completions.stream(
        model=model, messages=QUESTION, response_format=Length, extra_body=search(model)
    ) as events:
        return repr(events.get_final_completion().choices[0].message.parsed)


TOOL = {
    "type": "function",
    "function": {
        "name": "measure",
        "description": "Measure a length",
        "strict": True,
        "parameters": {**Length.model_json_schema(), "additionalProperties": False},
    },
}


@check("openai", "tool_choice required", DEMO, *DEMO_MODELS)
def required(url, model):
    said = openai_client(url).chat.completions.create(
        model=model,
        messages=QUESTION,
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
        extra_body=search(model),
    )
    assert said.choices[0].finish_reason == "tool_calls"
    (call,) = said.choices[0].message.tool_calls
    return repr(Length.model_validate_json(call.function.arguments))


@check("openai", "pydantic_function_tool, streamed", DEMO, *DEMO_MODELS)
def streamed_tool(url, model):
    import openai

    with openai_client(url).chat.completions.stream(
        model=model,
        messages=QUESTION,
        tools=[openai.pydantic_function_tool(Length)],
        tool_choice={"type": "function", "function": {"name": "Length"}},
        extra_body=search(model),
    ) as events:
        (call,) = events.get_final_completion().choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Length)
    return repr(call.function.parsed_arguments)


def langchain_model(url, model):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        base_url=f"{url}/v1", api_key="none", model=model, max_retries=0, extra_body=search(model)
    )


for method in ("json_schema", "function_calling"):

    @check("langchain-openai", f"with_structured_output, {method}", DEMO, *DEMO_MODELS)
    def structured(url, model, method=method):
        found = langchain_model(url, model).with_structured_output(Length, method=method)
        value = found.invoke("Compute 12 + 30.")
        assert isinstance(value, Length)
        return repr(value)


@check("langchain-openai", "with_structured_output, json_mode", AGENT, *AGENT_MODELS)
def json_mode(url, model):
    found = langchain_model(url, model).with_structured_output(Length, method="json_mode")
    return repr(found.invoke("Compute 12 + 30. Answer in JSON."))


def instructed(url, model, mode):
    import instructor

    client = instructor.from_openai(openai_client(url), mode=getattr(instructor.Mode, mode))
    value = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        response_model=Length,
        max_retries=0,
        extra_body=search(model),
    )
    assert isinstance(value, Length)
    return repr(value)


for mode in ("TOOLS", "JSON_SCHEMA"):
    check("instructor", mode, DEMO, *DEMO_MODELS)(
        lambda url, model, mode=mode: instructed(url, model, mode)
    )
check("instructor", "JSON", AGENT, *AGENT_MODELS)(lambda url, model: instructed(url, model, "JSON"))


@check("its_hub", "LLMJudge", DEMO, *DEMO_MODELS)
def judge(url, model):
    from its_hub.api import ChatMessage
    from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
    from its_hub.core.reward_models.llm_judge import LLMJudge

    lm = OpenAICompatibleLanguageModel(
        endpoint=f"{url}/v1", api_key="none", model_name=model, max_tokens=MOST
    )
    asked = [ChatMessage(role="user", content="1 + 1"), ChatMessage(role="assistant", content="2")]
    found = asyncio.run(LLMJudge(lm, fallback_score=-1.0).ascore(asked))
    assert found != -1.0
    return str(found)


@check("openai-agents", "an agent with two tools", AGENT, *AGENT_MODELS)
def agents(url, model):
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    used = []

    @function_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        used.append(("add", a, b))
        return str(a + b)

    @function_tool
    def double(n: int) -> str:
        """Double a number."""
        used.append(("double", n))
        return str(2 * n)

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    agent = Agent(name="Adder", instructions="Use tools.", model=chat, tools=[add, double])
    found = Runner.run_sync(agent, TASK)
    assert used == [("add", 2, 3), ("double", 5)], used
    return found.final_output


@check("openai-agents", "the same, streamed", AGENT, *AGENT_MODELS)
def agents_streamed(url, model):
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
    from openai import AsyncOpenAI

    @function_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @function_tool
    def double(n: int) -> str:
        """Double a number."""
        return str(2 * n)

    async def go():
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
        agent = Agent(name="Adder", instructions="Use tools.", model=chat, tools=[add, double])
        running = Runner.run_streamed(agent, TASK)
        async for _ in running.stream_events():
            pass
        return running.final_output

    return asyncio.run(go())


@check("langgraph", "create_react_agent with two tools", AGENT, *AGENT_MODELS)
def react(url, model):
    from langchain_core.tools import tool
    from langgraph.prebuilt import create_react_agent

    used = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        used.append(("add", a, b))
        return a + b

    @tool
    def double(n: int) -> int:
        """Double a number."""
        used.append(("double", n))
        return 2 * n

    agent = create_react_agent(langchain_model(url, model), [add, double])
    found = agent.invoke({"messages": [("user", TASK)]})
    assert used == [("add", 2, 3), ("double", 5)], used
    return found["messages"][-1].content


def main() -> None:
    """Run all checks, or those of the clients that are named."""
    demo, agent, *wanted = sys.argv[1:]
    for client, feature, models, function in CHECKS:
        if wanted and client not in wanted:
            continue
        try:
            result = function(demo if models == DEMO else agent)
            assert models == DEMO or re.search(r"\b(10|42)\b", result), result
            passed = True
        except Exception as error:
            traceback.print_exc()
            result, passed = f"{type(error).__name__}: {error}", False
        said = {
            "client": client,
            "version": importlib.metadata.version(client),
            "feature": feature,
            "models": models,
            "result": str(result)[:200],
            "passed": passed,
        }
        print(json.dumps(said), flush=True)
