import enum
import json
import os
from pathlib import Path

from . import bind, signature

_NAMES = json.loads(Path(os.environ["TTS_STANDIN_CONTRACT"]).read_text())["quant_algos"]
QuantAlgo = enum.StrEnum("QuantAlgo", {name: name for name in _NAMES})


class QuantConfig:
    __signature__ = signature("tensorrt_llm.llmapi.QuantConfig")

    def __init__(self, *args, **kwargs):
        given = bind("tensorrt_llm.llmapi.QuantConfig", args, kwargs)
        self.fields = {"quant_algo": None, "kv_cache_quant_algo": None} | given
