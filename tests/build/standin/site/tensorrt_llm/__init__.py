"""Plays the part of TensorRT-LLM that a conversion calls; refuses what the contract lacks."""

import inspect
import json
import os
from pathlib import Path

CALLS = json.loads(Path(os.environ["TTS_STANDIN_CONTRACT"]).read_text())["calls"]


def bind(name, args, kwargs):
    """The arguments of a call by name; TypeError for what the contract does not list."""
    call = CALLS[name]
    with (Path(os.environ["TTS_STANDIN_STATE"]) / "bound.jsonl").open("a") as file:
        file.write(json.dumps([name, len(args), sorted(kwargs)]) + "\n")
    if len(args) > len(call["positional"]):
        raise TypeError(f"{name}: too many arguments")
    given = dict(zip(call["positional"], args, strict=False))
    for key, value in kwargs.items():
        if key in given or key not in call["positional"] + call["keywords"]:
            raise TypeError(f"{name} got an unexpected keyword argument {key!r}")
        given[key] = value
    if missing := set(call["required"]) - given.keys():
        raise TypeError(f"{name} needs {missing}")
    return given


def signature(name, *first):
    """The signature that the contract has of a call, or what the test wants instead."""
    call, names = CALLS[name], list(first)
    file = Path(os.environ["TTS_STANDIN_STATE"]) / "misbehaviour.json"
    wrong = json.loads(file.read_text()).get("api", {}) if file.exists() else {}
    wrong = wrong.get(name, {})
    taken = [n for n in call["positional"] if n not in wrong.get("without", [])]
    by_name = [n for n in call["keywords"] if n not in wrong.get("without", [])]
    kind, empty = inspect.Parameter, inspect.Parameter.empty
    needed = (*first, *call["required"])
    return inspect.Signature(
        [
            *(
                kind(n, kind.POSITIONAL_OR_KEYWORD, default=empty if n in needed else None)
                for n in (*names, *taken)
            ),
            *(kind(n, kind.KEYWORD_ONLY, default=None) for n in by_name),
            *(kind(n, kind.KEYWORD_ONLY) for n in wrong.get("needs", [])),
        ]
    )


class Mapping:
    __signature__ = signature("tensorrt_llm.Mapping")

    def __init__(self, *args, **kwargs):
        given = bind("tensorrt_llm.Mapping", args, kwargs)
        self.rank = given.get("rank", 0)
        self.fields = {"world_size": 1, "tp_size": 1, "pp_size": 1, "moe_ep_size": 1} | given
        self.fields.pop("rank", None)
        if self.fields["world_size"] != self.fields["tp_size"] * self.fields["pp_size"]:
            raise ValueError("world_size must be tp_size * pp_size")
