"""Check forms of answers, tools and agents with the clients that people have, against a gateway.

Each client's own package is installed into an environment beside this one and run against two
gateways: that of the demo pair, whose answers and arguments are held to schemas by grammars, and
that of a scripted model, which uses two tools as an agent's task needs it. Prints a table; the exit
code is 1 if a check failed.

    scripts/run check_clients                          # everything: some minutes of downloads
    scripts/run check_clients --client openai --environment ~/clients   # kept for the next time
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

PACKAGES = (
    "openai",
    "langchain-openai",
    "instructor",
    "openai-agents",
    "langgraph",
    "litellm",
    "its_hub",
)
UNSAID = ("backoff", "aiohttp")
"""What its_hub 1.2.0 imports and does not ask for."""
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main() -> None:
    """Install, start both gateways, run the checks, print the table."""
    parser = argparse.ArgumentParser(prog="check_clients", description=__doc__.partition("\n")[0])
    parser.add_argument("--client", choices=PACKAGES, action="append", default=[])
    parser.add_argument("--environment", type=Path, help="where the clients are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tts-clients-") as temporary:
        folder = Path(temporary)
        python = environment((given.environment or folder / "environment").resolve())
        demo, agent = (write_deployment(folder, name) for name in ("demo", "agent"))
        run(folder, "build-engines", demo, "--no-verify")
        with (
            gateway(folder, "demo", *TTS, "gateway", demo, "--port") as plain,
            gateway(folder, "agent", sys.executable, HERE / "agent_gateway.py", agent) as scripted,
        ):
            seen = checked(python, plain, scripted, given.client)
    print(table(seen))
    sys.exit(0 if seen and all(each["passed"] for each in seen) else 1)


def environment(folder: Path) -> Path:
    """The Python of an environment with the clients, made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        done = subprocess.run(
            [*pip, *PACKAGES, *UNSAID], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"pip install failed:\n{done.stderr[-3000:]}")
    return python


@contextmanager
def gateway(home: Path, name: str, *command: str | Path) -> Iterator[str]:
    """The address of the gateway that a command runs at the port that is its last word."""
    port, log = free_port(), home / f"{name}.log"
    with serving([*command, str(port)], port, log, variables={"TTS_HOME": str(home)}):
        yield f"http://127.0.0.1:{port}"
    if "Traceback" in (said := log.read_text()):
        sys.exit(said)


def checked(python: Path, demo: str, agent: str, clients: list[str]) -> list[dict[str, Any]]:
    """What the checks have found, in order."""
    program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import clients; clients.main()"
    done = subprocess.run(
        [str(python), "-c", program, demo, agent, *clients],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"client"')]


def table(seen: list[dict[str, Any]]) -> str:
    """The findings as Markdown: a row for each feature, with all kinds of requests."""
    lines = [
        "| client | version | feature | requests | engine | results |",
        "|---|---|---|---|---|---|",
    ]
    for names, group in groupby(seen, itemgetter("client", "version", "feature", "models")):
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
