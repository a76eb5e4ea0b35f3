"""kill -9 while requests are answered: what has been answered is in the request log."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time

from .raw import chat, exchange, post
from .running import TTS, Gateway

LOST_S = 0.1
"""How much of its end the log may lack, by the gateway's own promise."""
SLACK_S = 0.05
"""From the last byte of an answer here to its record there."""


def run(gateway: Gateway, seconds: float, clients: int) -> dict[str, int]:
    """Ask for a while, kill, read the log.

    Raises AssertionError if the log is not readable or lacks more than it may.
    """
    answered: list[float] = []
    since = time.time()
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                if exchange(gateway.host_port, post(chat())) == 200:
                    answered.append(time.monotonic())
            except OSError:
                return

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    killed = time.monotonic()
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait()
    ended.set()
    for thread in threads:
        thread.join()
    words = [*TTS, "requests", "demo", "--format", "jsonl"]
    read = subprocess.run(words, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    logged = [json.loads(line) for line in read.stdout.splitlines()]
    ok = sum(record["outcome"] == "ok" and record["time"] >= since for record in logged)
    due = sum(at < killed - LOST_S - SLACK_S for at in answered)
    assert ok >= due, f"{due} were answered {LOST_S} s before the end, {ok} are in the log"
    return {"answered": len(answered), "of which due in the log": due, "in the log": ok}
