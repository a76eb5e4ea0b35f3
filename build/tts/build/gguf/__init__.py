"""Checkpoints in GGUF files, llama.cpp's format.

`file` reads what a file says of itself, `model` what that means for transformers, `tokenizer` makes
its tokenizer.json, and `folder` writes it all as the checkpoint folder that everything else reads.
"""

SUFFIX = ".gguf"
