"""Check forms of answers, tools and agents with the clients that people have, against a gateway.

Each client's own package is installed into an environment of its own and run against two
gateways: that of the demo pair, whose answers and arguments are held to schemas by grammars, and
that of a scripted model, which uses two tools as an agent's task needs it. Prints a table; the exit
code is 1 if a check failed.

    scripts/run check_clients           # everything: minutes of downloads, most of them promptfoo
    scripts/run check_clients --client openai --environments ~/clients  # kept for the next time
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from scripts.check_clients.deployment import write_deployment
from scripts.robustness.commands import TTS, run
from scripts.serving import free_port, serving

PACKAGES = {
    "openai": "openai",
    "langchain-openai": "langchain-openai",
    "instructor": "instructor",
    "openai-agents": "openai-agents",
    "langgraph": "langgraph langchain-openai",
    "litellm": "litellm[proxy]",
    "its_hub": "its_hub backoff aiohttp certifi",
    "lm-eval": "lm-eval[api]",
    "inspect-ai": "inspect-ai openai",
    "smolagents": "smolagents[openai]",
    "dspy": "dspy",
    "pydantic-ai-slim": "pydantic-ai-slim[openai]",
    "treequest": "treequest",
}
"""What pip installs for each client of Python; its_hub 1.2.0 does not ask for all that it imports.
"""
NODE_PACKAGES = {
    "openai": "openai zod",
    "ai": "ai @ai-sdk/openai @ai-sdk/openai-compatible zod",
    "promptfoo": "promptfoo",
}
"""What npm installs for each client of Node."""
CLIENTS = [*PACKAGES, *(f"node:{name}" for name in NODE_PACKAGES)]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main() -> None:
    """Install, start both gateways, run the checks, print the table."""
    parser = argparse.ArgumentParser(prog="check_clients", description=__doc__.partition("\n")[0])
    parser.add_argument("--client", choices=CLIENTS, action="append", default=[])
    parser.add_argument("--environments", type=Path, help="where the clients are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tts-clients-") as temporary:
        folder = Path(temporary)
        environments = (options.environments or folder).resolve()
        programs = [installed(environments, client) for client in options.client or CLIENTS]
        demo, agent = (write_deployment(folder, name) for name in ("demo", "agent"))
        run(folder, "build-engines", demo, "--no-verify")
        with (
            gateway(folder, "demo", *TTS, "gateway", demo, "--port") as plain,
            gateway(folder, "agent", sys.executable, HERE / "agent_gateway.py", agent) as scripted,
        ):
            findings = [each for program in programs for each in checked(program, plain, scripted)]
    print(table(findings))
    sys.exit(0 if findings and all(each["passed"] for each in findings) else 1)


def installed(environments: Path, client: str) -> tuple[Path, list[str]]:
    """A client's folder, in which it is installed if it is not, and what runs its checks there."""
    folder, name = environments / client.replace(":", "-"), client.removeprefix("node:")
    python = folder / "bin" / "python"
    if name != client:
        run_there = ["node", str(HERE / "clients.mjs"), name]
        install = ["npm", "install", "--silent", "--prefix", ".", *NODE_PACKAGES[name].split()]
    else:
        begin = f"import sys; sys.path.insert(0, {str(HERE)!r}); import clients; clients.main()"
        run_there = [str(python), "-c", begin, name]
        install = [str(python), "-m", "pip", "--quiet", "install", "pydantic"]
        install += PACKAGES[name].split()
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if name == client:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        process = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
        if process.returncode:
            sys.exit(f"{client} cannot be installed:\n{process.stderr[-3000:]}")
        (folder / "installed").touch()
    return folder, run_there


@contextmanager
def gateway(home: Path, name: str, *command: str | Path) -> Iterator[str]:
    """The address of the gateway that a command runs at the port that is its last word."""
    port, log = free_port(), home / f"{name}.log"
    with serving([*command, str(port)], port, log, variables={"TTS_HOME": str(home)}):
        yield f"http://127.0.0.1:{port}"
    if "Traceback" in (log_text := log.read_text()):
        sys.exit(log_text)


def checked(program: tuple[Path, list[str]], demo: str, agent: str) -> list[dict[str, Any]]:
    """What a client's checks have found, in order."""
    folder, words = program
    process = subprocess.run(
        [*words, demo, agent], cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    return [
        json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"client"')
    ]


def table(findings: list[dict[str, Any]]) -> str:
    """The findings as Markdown: a row for each feature, with all kinds of requests."""
    lines = [
        "| client | version | feature | requests | engine | results |",
        "|---|---|---|---|---|---|",
    ]
    for names, group in groupby(findings, itemgetter("client", "version", "feature", "models")):
        checks = list(group)
        kinds = ", ".join(each["kind"] for each in checks)
        results = ", ".join(dict.fromkeys(map(result_of, checks)))
        client, version, feature, models = names
        lines.append(f"| {client} | {version} | {feature} | {kinds} | {models} | {results} |")
    return "\n".join(lines)


def result_of(check: dict[str, Any]) -> str:
    """What a check has found, as Markdown."""
    result = check["result"].replace("|", "\\|").replace("\n", " ")
    return f"`{result}`" if check["passed"] else f"**failed**: {result}"


if __name__ == "__main__":
    main()
