"""Settings and example questions of a model: all that an application needs for a form.

Parameters are described as JSON Schema does it, each with its default on this deployment.
"""

from __future__ import annotations

from typing import Any

from tts.build.spec.field_docs import field_doc
from tts.datasets.demo import EXAMPLES
from tts.prompting.chat import takes_system
from tts.search import SearchConfig
from tts.session.doubts import DOUBTFUL, is_demo_pair
from tts.session.strategy import choose
from tts.strategies.catalog import find_strategy

from .output.generation import PLAIN_TEMPERATURE, PLAIN_TOP_P
from .service import Service

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
"""Parameters of a search that plain generation has as well."""
_PLAIN = {
    "temperature": PLAIN_TEMPERATURE,
    "top_p": PLAIN_TOP_P,
    "top_k": 0,
    "min_p": 0.0,
    "max_tokens": None,
}
_SEED = "The same seed gives the same answer."
_GENERAL = (
    "What is the sum of the first 50 odd numbers?",
    "A train travels 180 km in 2.5 hours. What is its average speed in km/h?",
    "How many positive divisors does 360 have?",
    "Find the remainder when 7^100 is divided by 13.",
)
"""Questions for models that were made for more than the demo pair was."""


def model_card(service: Service, strategy: str | None) -> dict[str, Any]:
    """The field `tts` of a model; `strategy`: the search that its name stands for, if any.

    Raises ConfigError for a strategy of a plug-in that cannot be loaded.
    """
    deployment = service.deployment
    if strategy is None:
        about = "One sample, without a search."
        described = _described(SearchConfig, _PLAIN)
        described["max_tokens"]["description"] = "Most tokens of the answer."
    else:
        entry = find_strategy(strategy)
        config = choose(strategy, deployment, {}).config
        assert config is not None
        about, defaults = entry.summary, config.model_dump(mode="json", exclude=set(entry.fixed))
        described = _described(type(config), defaults)
    sampling = {name: described.pop(name) for name in SAMPLING}
    sampling["seed"] = {"type": "integer", "default": 0 if strategy else None, "description": _SEED}
    return {
        "strategy": strategy,
        "about": about,
        "sampling": sampling,
        "parameters": described,
        "system_messages": takes_system(service.generator.models.generator),
        "examples": EXAMPLES if is_demo_pair(deployment) else _GENERAL,
        "warns_below": DOUBTFUL,
    }


def _described(kind: Any, defaults: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters that have a default, each with its type, bounds and a line of help."""
    schema = kind.model_json_schema()["properties"]
    described = {}
    for name, default in defaults.items():
        facts = {key: value for key, value in schema[name].items() if key != "title"}
        if "$ref" in facts:  # a structure: too much for a form
            facts = {"type": "object"}
        described[name] = {**facts, "default": default, "description": _help(kind, name)}
    return described


def _help(kind: Any, name: str) -> str:
    try:
        return " ".join(field_doc(name, kind).split())
    except (OSError, TypeError):  # a plug-in without its source
        return ""
