"""Faults of the checkpoints."""

import json
import random
from pathlib import Path
from typing import Any

from tests.checks.faults.site import (
    ROLES,
    Site,
    flipped,
    other_kind,
)


def json_edit(file: Path, **fields: Any) -> str:
    data = json.loads(file.read_text())
    assert data | fields != data
    file.write_text(json.dumps(data | fields))
    return f"{file.parent.name}/{file.name}: {fields}"


def chat_template(site: Site, rng: random.Random) -> str:
    file = site.checkpoint("generator") / "tokenizer_config.json"
    template = json.loads(file.read_text())["chat_template"]
    content = "(message['content'] | trim)"
    assert content in template
    other = rng.choice(
        [
            "''",
            "'Compute 1 + 1.'",
            "(message['content'] | upper)",
            "(message['content'] | truncate(100))",
            "message['content'][:50]",
            "message['content'][1:]",
            "(message['content'] | replace('\\n', ' '))",
            "(message['content'] | escape)",
            "message['text']",
            "message['content'",
        ]
    )
    return json_edit(file, chat_template=template.replace(content, other))


def end_token(site: Site, rng: random.Random) -> str:
    folder = site.checkpoint(rng.choice(ROLES))
    name = rng.choice(["config.json", "generation_config.json"])
    value = rng.choice([0, 1, 4, 17, [5, 17], [1, 2], 10**6, -1, "</s>"])
    return json_edit(folder / name, eos_token_id=value)


def checkpoint_byte(site: Site, rng: random.Random) -> str:
    folder = site.checkpoint(rng.choice(ROLES))
    return flipped(folder / "model.safetensors", rng)


def checkpoint_file_kind(site: Site, rng: random.Random) -> str:
    folder = site.checkpoint(rng.choice(ROLES))
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    return other_kind(rng.choice([folder, *(folder / n for n in [*names, "model.safetensors"])]))
