"""Gateways and servers of the demo pair in processes of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from scripts.robustness.commands import TTS, build_demo, start
from scripts.robustness.commands import run as run_tts
from tts.build.spec import load_deployment

STARTS_S = 120.0
SERVING = re.compile(r"Serving \S+ at (\S+)/v1 ")


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves."""

    address: str
    """http://host:port."""
    process: subprocess.Popen[str]
    said: list[str]
    """Lines of its standard error, so far."""

    @property
    def host_port(self) -> tuple[str, int]:
        """To connect to."""
        host, _, port = self.address.removeprefix("http://").rpartition(":")
        return host, int(port)

    @property
    def rss_mb(self) -> float:
        """Resident memory of its process, megabytes."""
        return float(psutil.Process(self.process.pid).memory_info().rss / 1e6)


@contextmanager
def engines() -> Iterator[Path]:
    """A TTS_HOME of its own with the demo pair's engines, for this process and its children."""
    with tempfile.TemporaryDirectory(prefix="tts-gateway-") as folder:
        os.environ["TTS_HOME"] = folder
        build_demo(Path(folder))
        yield Path(folder)


@contextmanager
def gateway(*arguments: str, deployment: str = "demo") -> Iterator[Gateway]:
    """A gateway for as long as the block lasts, on a port of its own."""
    process = subprocess.Popen(
        [*TTS, "gateway", deployment, "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    reading = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
    try:
        for line in process.stderr:
            said.append(line)
            if found := SERVING.search(line):
                break
        else:
            sys.exit("".join(said))
        reading.start()
        yield Gateway(found[1], process, said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        if reading.ident is not None:
            reading.join()
        process.stderr.close()


def logged_since(unix_time: float) -> list[dict[str, Any]]:
    """The gateway's log of the requests that arrived since; RuntimeError if it is not readable."""
    lines = run_tts(
        Path(os.environ["TTS_HOME"]), "gateway", "requests", "demo", "--format", "jsonl"
    )
    records = map(json.loads, lines.splitlines())
    return [record for record in records if record["time"] >= unix_time]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def deployment_at(home: Path, number: int, port: int) -> Path:
    """A file of the demo pair at a port, and a home of its own for its server, below `home`."""
    own = home / f"server-{number}"
    shutil.copytree(home / "built", own / "built")
    data = load_deployment("demo").model_dump(mode="json", exclude_none=True)
    data["server"] = {"grpc_port": port}
    file = own / "demo.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


@contextmanager
def served(file: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server in processes of its own, once it listens."""
    log = file.parent / "serve.log"
    with log.open("wb") as output:
        process = start(file.parent, "serve", file, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + STARTS_S
        while b"Ready:" not in (said := log.read_bytes()):
            assert process.poll() is None, said.decode()
            assert time.monotonic() < deadline, said.decode()
            time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
