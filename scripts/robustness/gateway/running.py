"""Gateways of the demo pair in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

TTS = [sys.executable, "-c", "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"]
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
        subprocess.run(
            [*TTS, "build-engines", "demo", "--no-verify"], check=True, capture_output=True
        )
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
