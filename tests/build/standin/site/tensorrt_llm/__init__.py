"""Plays the part of TensorRT-LLM that a conversion calls; refuses what the facts lack."""

import json
import os
from pathlib import Path

FACTS = json.loads(Path(os.environ["TTS_STANDIN_API"]).read_text())


def bind(name, args, kwargs):
    """The arguments of a call by name; TypeError for what the contract does not list."""
    call = FACTS["calls"][name]
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


class Mapping:
    def __init__(self, *args, **kwargs):
        given = bind("tensorrt_llm.Mapping", args, kwargs)
        self.rank = given.get("rank", 0)
        self.fields = {"world_size": 1, "tp_size": 1, "pp_size": 1, "moe_ep_size": 1} | given
        self.fields.pop("rank", None)
        if self.fields["world_size"] != self.fields["tp_size"] * self.fields["pp_size"]:
            raise ValueError("world_size must be tp_size * pp_size")
