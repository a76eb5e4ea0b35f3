"""Clients that people have, against a gateway of the demo pair: each run for real.

`openai` 2.x and 3.x, its_hub's beam search and particle filtering, lm-eval's local-completions and
local-chat-completions on 20 problems and its log-likelihoods of four choices each, Chromium. What
is not installed here is installed by pip into throw-away environments (openai 2.x, lm-eval: about a
gigabyte, some minutes).

    scripts/run robustness.clients                          # everything
    scripts/run robustness.clients --client openai-3 --client browser
    scripts/run robustness.clients --environments ~/clients # kept there for the next time
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from scripts.robustness.gateway import running
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.datasets.load import load_problems
from tts.gateway.chat_shapes import ChatShapes
from tts.gateway.openai.messages import ChatMessage
from tts.gateway.prompts import chat_text

HERE = Path(__file__).parent
PROBLEMS = 20
OPENAI_2 = "openai>=2,<3"
LM_EVAL = "lm-eval[api]==0.4.13"
MAX_TOKENS = 192
TASKS = {
    "demo_text": "local-completions",
    "demo_chat": "local-chat-completions",
    "demo_choice": "local-completions",
}
"""By task how the harness asks. The last has four choices to a question, as arc_easy does."""


def main() -> None:
    """Run the clients that were asked for; fails with the first that does."""
    clients: dict[str, Callable[[str, Path, Path], dict[str, object]]] = {
        "openai-3": openai_3,
        "openai-2": openai_2,
        "its_hub": its_hub,
        "lm-eval": lm_eval,
        "browser": browser,
    }
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--client", choices=clients, action="append")
    parser.add_argument("--environments", type=Path, help="where installed clients are kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tts-clients-") as temporary, running.engines():
        folder = Path(temporary)
        environments = (arguments.environments or folder / "environments").resolve()
        problems = [
            {"question": each.question, "answer": each.answer, **choices(str(each.answer), place)}
            for place, each in enumerate(load_problems("demo", limit=PROBLEMS))
        ]
        (folder / "problems.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
        with running.gateway() as gateway:
            for name in arguments.client or clients:
                began = time.monotonic()
                seen = clients[name](gateway.address, folder, environments)
                print(f"{name}: {json.dumps(seen)} ({time.monotonic() - began:.0f} s)", flush=True)
        if "Traceback" in (said := "".join(gateway.said)):
            sys.exit(f"The gateway said:\n{said}")


def choices(answer: str, place: int) -> dict[str, object]:
    """Four answers in their boxes, and which of them is right."""
    others = [f"{answer[:-1]}{(int(answer[-1]) + by) % 10}" for by in (1, 3, 7)]
    given = [f"\\boxed{{{other}}}" for other in others]
    right = place % 4
    given.insert(right, f"\\boxed{{{answer}}}")
    return {"choices": given, "right": right}


def openai_3(address: str, folder: Path, environments: Path) -> dict[str, object]:
    """The version that is installed here."""
    return run([sys.executable, str(HERE / "openai_client.py"), address])


def openai_2(address: str, folder: Path, environments: Path) -> dict[str, object]:
    """An earlier one, in an environment of its own."""
    python = environment(environments / "openai-2", OPENAI_2)
    return run([str(python), str(HERE / "openai_client.py"), address])


def its_hub(address: str, folder: Path, environments: Path) -> dict[str, object]:
    """Its own searches, over HTTP."""
    problems = folder / "problems.jsonl"
    return run([sys.executable, str(HERE / "its_hub_client.py"), address, str(problems)])


def browser(address: str, folder: Path, environments: Path) -> dict[str, object]:
    """The page."""
    return run([sys.executable, str(HERE / "browser_client.py"), address])


def lm_eval(address: str, folder: Path, environments: Path) -> dict[str, object]:
    """The evaluation harness, by both of its ways."""
    python = environment(environments / "lm-eval", LM_EVAL)
    version = "import importlib.metadata as m; print(m.version('lm_eval'))"
    seen: dict[str, object] = {
        "lm_eval": subprocess.check_output([python, "-c", version], text=True).strip(),
        "problems": PROBLEMS,
    }
    chats = ChatShapes(Tokenizer(load_deployment("demo").generator.tokenizer_folder))
    chat = [ChatMessage("user", "{{question}}")]
    template = chat_text(chats, chat, generation_prompt=True, continues=False)
    write_lm_eval_tasks(folder, folder / "problems.jsonl", template)
    for task, model in TASKS.items():
        words = lm_eval_command(python.with_name("lm_eval"), task, model, address, folder)
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "HF_HOME": str(folder / "huggingface"),
                "HF_HUB_OFFLINE": "1",
                "HF_DATASETS_OFFLINE": "1",
                "OPENAI_API_KEY": "none",
            },
        )
        if done.returncode:
            sys.exit(f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}")
        seen[task] = lm_eval_result(folder, task)
    return seen


def write_lm_eval_tasks(folder: Path, problems: Path, template: str) -> None:
    """Tasks of the harness: generate a solution, compare what stands in the last box; or choose.

    Chats are sent as they are. For completions the task's texts are those of `template`, a chat
    with {{question}} in it: with a remote tokenizer the harness would send the list of messages as
    a text (0.4.13).
    """
    _write_task(folder, problems, "demo_text", template)
    _write_task(folder, problems, "demo_chat", "{{question}}")
    choice = {
        "task": "demo_choice",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(problems)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": template,
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{right}}",
        "target_delimiter": "",
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": True}
            for name in ("acc", "acc_norm")
        ],
        "metadata": {"version": 1.0},
    }
    (folder / "demo_choice.yaml").write_text(yaml.safe_dump(choice, sort_keys=False))


def _write_task(folder: Path, problems: Path, name: str, text: str) -> None:
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


def lm_eval_command(program: Path, task: str, model: str, address: str, folder: Path) -> list[str]:
    """The harness on a task, by one of its two ways to ask an API; its results go into `folder`."""
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
        *("--tasks", task, "--include_path", str(folder)),
        *("--output_path", str(folder / task), "--log_samples"),
        *(["--apply_chat_template"] if model == "local-chat-completions" else []),
    ]


def lm_eval_result(folder: Path, task: str) -> float:
    """The share of problems that were solved, as the harness says it."""
    (file,) = sorted((folder / task).rglob("results_*.json"))[-1:]
    found = json.loads(file.read_text())["results"][task]
    return float(found["acc,none" if task == "demo_choice" else "exact_match,boxed"])


def run(words: list[str]) -> dict[str, object]:
    """What a client's program has printed."""
    here = {**os.environ, "PYTHONPATH": ""} if words[0] != sys.executable else None
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=here)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-5000:]}")
    seen: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return seen


def environment(folder: Path, package: str) -> Path:
    """The Python of an environment with a package, made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        done = subprocess.run([*pip, package], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"pip install {package} failed:\n{done.stderr[-3000:]}")
    return python


if __name__ == "__main__":
    main()
