"""The demo pair with a chat template that knows tools and system messages, and a longer context."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from tts.base import paths

CONTEXT = 4096
TEMPLATE = """{{ bos_token }}{% if tools %}<|user|>You have these tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}To call one, write <tool_call>{"name": ..., "arguments": ...}</tool_call>.
{% endif %}{% for message in messages %}<|user|>{% if message.role != "user" %}{{ message.role }}: \
{% endif %}{{ message.content }}\
{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|eot_id|>{% endfor %}\
{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def write_deployment(folder: Path, name: str) -> Path:
    """A deployment file of that name, beside its checkpoint."""
    demo = paths.deployments_dir() / "demo.yaml"
    deployment: dict[str, Any] = yaml.safe_load(demo.read_text())
    checkpoints = demo.parent.parent / "checkpoints"
    generator = folder / "generator"
    shutil.copytree(checkpoints / "demo-generator", generator, dirs_exist_ok=True)
    change(generator / "config.json", max_position_embeddings=CONTEXT)
    change(generator / "tokenizer_config.json", chat_template=TEMPLATE)
    verifier = folder / "verifier"
    shutil.copytree(checkpoints / "demo-verifier", verifier, dirs_exist_ok=True)
    change(verifier / "config.json", max_position_embeddings=CONTEXT)
    deployment["name"] = name
    deployment["generator"] |= {"checkpoint": str(generator), "max_seq_len": CONTEXT}
    deployment["verifier"] |= {"checkpoint": str(verifier), "max_seq_len": CONTEXT}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(deployment))
    return file


def change(file: Path, **values: object) -> None:
    """Set entries of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))
