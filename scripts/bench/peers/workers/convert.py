"""Write a GGUF of SmolLM2 as a Hugging Face checkpoint: `convert.py FILE FOLDER`.

transformers 4.57 dequantises the weights (later versions keep them packed, and cannot save them),
but makes a wrong tokenizer of a vocabulary of this kind: it adds BOS, keeps numbers whole and takes
the wrong end. What SmolLM2's own has is set here instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

START, END = "<|im_start|>", "<|im_end|>"


def main() -> None:
    """Convert the file that the command line names."""
    file, folder = Path(sys.argv[1]), Path(sys.argv[2])
    where = {"gguf_file": file.name}
    AutoModelForCausalLM.from_pretrained(file.parent, dtype="bfloat16", **where).save_pretrained(
        folder
    )
    AutoTokenizer.from_pretrained(file.parent, **where).save_pretrained(folder)
    (folder / "tokenizer.model").unlink(missing_ok=True)  # a copy of the whole GGUF
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    bytes_of = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    split = [digits, bytes_of | {"add_prefix_space": False}]
    tokenizer |= {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split},
        "post_processor": None,
        "decoder": bytes_of | {"add_prefix_space": True},
    }
    tokenizer["model"] |= {"unk_token": None, "fuse_unk": False, "byte_fallback": False}
    _write(folder / "tokenizer.json", tokenizer)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    ends = {"bos_token": START, "eos_token": END, "pad_token": END}
    config |= ends | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 8192,
        "add_bos_token": False,
    }
    config.pop("legacy", None)
    _write(folder / "tokenizer_config.json", config)
    _write(folder / "special_tokens_map.json", ends)


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
