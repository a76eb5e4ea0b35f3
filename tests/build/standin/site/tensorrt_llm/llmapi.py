import enum

from . import FACTS, bind

QuantAlgo = enum.StrEnum("QuantAlgo", {name: name for name in FACTS["quant_algos"]})


class QuantConfig:
    def __init__(self, *args, **kwargs):
        given = bind("tensorrt_llm.llmapi.QuantConfig", args, kwargs)
        self.fields = {"quant_algo": None, "kv_cache_quant_algo": None} | given
