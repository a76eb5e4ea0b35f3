"""The tokenizer that OpenVINO GenAI matches grammars with: the texts of the tokens, nothing else.

The pipeline takes token ids, and no text is ever encoded here. GenAI reads the texts out of the
constants of a detokenizer's graph, and the id that ends a sequence out of a config.json beside it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openvino as ov
import openvino.opset15 as ops
import openvino_genai as ov_genai


def guide_tokenizer(texts: Sequence[bytes], vocab_size: int, end_id: int) -> Any:
    """A tokenizer of these texts, by id; ids beyond them, up to `vocab_size`, have none."""
    # here, because importing it changes what openvino.Core loads
    from openvino_tokenizers.tokenizer_pipeline import FuseStep, VocabDecoderStep

    padded = [*texts, *[b""] * (vocab_size - len(texts))]
    ids = ops.parameter(ov.PartialShape(["?", "?"]), ov.Type.i64)
    # a list of skipped tokens that is empty gives a graph that does not compile (2026.4)
    decoded = VocabDecoderStep(padded, [end_id]).get_ov_subgraph(ops.convert(ids, "i32").outputs())
    packed = ops.string_tensor_pack(*FuseStep().get_ov_subgraph(decoded))
    model = ov.Model(packed.outputs(), [ids], "detokenizer")
    model.output().tensor.add_names({"string_output"})
    with tempfile.TemporaryDirectory() as folder:
        ov.save_model(model, Path(folder, "openvino_detokenizer.xml"), compress_to_fp16=False)
        Path(folder, "config.json").write_text(json.dumps({"eos_token_id": end_id}))
        return ov_genai.Tokenizer(folder)
