import json
import os
from pathlib import Path

from . import bind


class _Model:
    def __init__(self, given):
        self.given = given

    @classmethod
    def from_hugging_face(cls, *args, **kwargs):
        given = bind(f"tensorrt_llm.models.{cls.__name__}.from_hugging_face", args, kwargs)
        _read(given["hf_model_or_dir"])
        if given["quant_config"].fields["quant_algo"] not in (None, "W8A16", "W4A16"):
            raise ValueError("this algorithm needs quantize()")
        if given.get("trust_remote_code", True):
            raise AssertionError("remote code")
        return cls(given)

    def save_checkpoint(self, *args, **kwargs):
        given = bind("PretrainedModel.save_checkpoint", args, kwargs)
        mapping = self.given["mapping"]
        output = Path(given["output_dir"])
        (output / f"rank{mapping.rank}.safetensors").write_text("weights")
        if given.get("save_config", True):
            (output / "config.json").write_text(json.dumps(_config(self.given, "float32")))

    @classmethod
    def quantize(cls, *args, **kwargs):
        given = bind("PretrainedModel.quantize", args, kwargs)
        _read(given["hf_model_dir"])
        if given["quant_config"].fields["quant_algo"] not in ("FP8", "W4A16_AWQ"):
            raise ValueError("should not call modelopt quantization")
        output = Path(given["output_dir"])
        for rank in range(given["mapping"].fields["world_size"]):
            (output / f"rank{rank}.safetensors").write_text("weights")
        (output / "config.json").write_text(json.dumps(_config(given, "float16")))


class LLaMAForCausalLM(_Model):
    pass


class QWenForCausalLM(_Model):
    pass


def _read(folder):
    for name in ("vila", "mpt"):
        if name in folder:
            raise AssertionError(f"taken for a model of family {name}")
    json.loads((Path(folder) / "config.json").read_text())
    with (Path(os.environ["TTS_STANDIN_STATE"]) / "converted").open("a") as file:
        file.write("once\n")


def _config(given, logits_dtype):
    return {
        "architecture": "LlamaForCausalLM",
        "dtype": given["dtype"],
        "logits_dtype": logits_dtype,
        "mapping": given["mapping"].fields,
        "quantization": given["quant_config"].fields,
    }
