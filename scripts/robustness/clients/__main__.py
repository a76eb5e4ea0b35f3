"""Clients that people have, against a gateway of the demo pair: each run for real.

`openai` 2.x and 3.x, its_hub's beam search and particle filtering, lm-eval's local-completions and
local-chat-completions on 20 problems, Chromium. What is not installed here is installed by pip into
throw-away environments (openai 2.x, lm-eval: about a gigabyte, some minutes).

    scripts/run robustness.clients                          # everything
    scripts/run robustness.clients --client openai-3 --client browser
    scripts/run robustness.clients --environments ~/clients # kept there for the next time
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.robustness.clients import lm_eval_task
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.datasets.load import load_problems
from tts.gateway.chat_shapes import ChatShapes
from tts.gateway.openai.requests import ChatMessage
from tts.gateway.prompts import chat_text

HERE = Path(__file__).parent
TTS = "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"
SERVING = re.compile(r"Serving \S+ at (\S+)/v1 ")
PROBLEMS = 20
OPENAI_2 = "openai>=2,<3"
LM_EVAL = "lm-eval[api]==0.4.13"


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
    with tempfile.TemporaryDirectory(prefix="tts-clients-") as temporary:
        folder = Path(temporary)
        environments = (arguments.environments or folder / "environments").resolve()
        os.environ["TTS_HOME"] = str(folder / "home")
        build = [sys.executable, "-c", TTS, "build-engines", "demo", "--no-verify"]
        subprocess.run(build, check=True, capture_output=True)
        problems = [
            {"question": each.question, "answer": each.answer}
            for each in load_problems("demo", limit=PROBLEMS)
        ]
        (folder / "problems.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
        with gateway() as address:
            for name in arguments.client or clients:
                began = time.monotonic()
                seen = clients[name](address, folder, environments)
                print(f"{name}: {json.dumps(seen)} ({time.monotonic() - began:.0f} s)", flush=True)


@contextmanager
def gateway() -> Iterator[str]:
    """The address of a gateway of the demo pair."""
    words = [sys.executable, "-c", TTS, "gateway", "demo", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := SERVING.search(line):
                break
        else:
            sys.exit("".join(said))
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate()
        if "Traceback" in rest:
            sys.exit(f"The gateway said:\n{rest}")


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
    chats = ChatShapes(Tokenizer(load_deployment("demo").generator.checkpoint))
    chat = [ChatMessage("user", "{{question}}")]
    template = chat_text(chats, chat, generation_prompt=True, continues=False)
    lm_eval_task.write_tasks(folder, folder / "problems.jsonl", template)
    for model in ("local-completions", "local-chat-completions"):
        words = lm_eval_task.command(python.with_name("lm_eval"), model, address, folder)
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
        seen[model] = lm_eval_task.result(folder, model)
    return seen


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
