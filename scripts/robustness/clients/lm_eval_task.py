"""lm-eval's harness against a gateway: its task over the demo's problems, and the commands.

Chats are sent as they are. For completions the task's texts hold the chat template's words: with a
remote tokenizer the harness would send the list of messages as a text (0.4.13).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

MAX_TOKENS = 192
TASKS = {"local-completions": "demo_text", "local-chat-completions": "demo_chat"}


def write_tasks(folder: Path, problems: Path, template: str) -> None:
    """Tasks of the harness: generate a solution, compare what stands in the last box.

    `template` is a chat's text, with {{question}} in it.
    """
    _write(folder, problems, TASKS["local-completions"], template)
    _write(folder, problems, TASKS["local-chat-completions"], "{{question}}")


def _write(folder: Path, problems: Path, name: str, text: str) -> None:
    task: dict[str, Any] = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(problems)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": text,
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {
            "until": ["<|eot_id|>"],
            "do_sample": False,
            "max_gen_toks": MAX_TOKENS,
        },
        "filter_list": [
            {
                "name": "boxed",
                "filter": [
                    {
                        "function": "regex",
                        "regex_pattern": r"\\boxed\{([^}]*)\}",
                        "group_select": -1,
                    },
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(task, sort_keys=False))


def command(program: Path, model: str, address: str, folder: Path) -> list[str]:
    """The harness on one of its two ways to ask an API; its results go into `folder`."""
    paths = {
        "local-completions": f"{address}/v1/completions",
        "local-chat-completions": f"{address}/v1/chat/completions",
    }
    # the tokenizer of the first is the gateway's own: /tokenizer_info, /tokenize
    backend = "remote" if model == "local-completions" else "none"
    given = {
        "model": "demo",
        "base_url": paths[model],
        "tokenizer_backend": backend,
        "num_concurrent": "4",
        "max_retries": "1",
    }
    return [
        *(str(program), "--model", model),
        *("--model_args", ",".join(f"{name}={value}" for name, value in given.items())),
        *("--tasks", TASKS[model], "--include_path", str(folder)),
        *("--output_path", str(folder / model)),
        *(["--apply_chat_template"] if model == "local-chat-completions" else []),
    ]


def result(folder: Path, model: str) -> float:
    """The share of problems that were solved, as the harness says it."""
    (file,) = sorted((folder / model).rglob("results_*.json"))[-1:]
    found = json.loads(file.read_text())["results"][TASKS[model]]
    return float(found["exact_match,boxed"])
