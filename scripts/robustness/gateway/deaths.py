"""kill -9 of a gateway, and of a server behind one, while requests are answered.

What a gateway has answered is in its request log. When a server dies, and another is added, every
request must be answered once, with the text that an undisturbed gateway gives. Searches have
fixed seeds, and go on elsewhere from their trees. Samples are greedy: they go on after the tokens
that they have, and what is drawn there with a seed is another draw.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tts.datasets.load import load_problems

from .hostile import chat, exchange, post
from .running import Gateway, deployment_at, free_port, gateway, logged_since, served

LOST_S = 0.1
"""How much of its end the log may lack, by the gateway's own promise."""
SLACK_S = 0.05
"""Between the last byte of an answer here and its record there."""
QUESTIONS = 12
AFTER_S = 10.0
"""How long after the death of a server latencies are looked at."""


def kill_gateway(
    gateway: Gateway, seconds: float, clients: int, lost_s: float = LOST_S
) -> dict[str, int]:
    """Ask for a while, kill, read the log, which may lack the last `lost_s`.

    Raises RuntimeError if the log is not readable, AssertionError if it lacks more than it may.
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
    ok = sum(record["outcome"] == "ok" for record in logged_since(since))
    due = sum(at < killed - lost_s - SLACK_S for at in answered)
    assert ok >= due, f"{due} were answered {lost_s} s before the end, {ok} are in the log"
    return {"answered": len(answered), "of which due in the log": due, "in the log": ok}


def kill_server(home: Path, clients: int, before_s: float) -> dict[str, Any]:
    """Ask for a while, kill one server, add another, ask on. Raises AssertionError."""
    since = time.time()
    with ExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        files = [deployment_at(home, number, port) for number, port in enumerate(ports)]
        first, _ = (stack.enter_context(served(file, port))
                    for file, port in zip(files[:2], ports[:2], strict=True))  # fmt: skip
        servers = home / "servers.txt"
        servers.write_text("".join(f"127.0.0.1:{port}\n" for port in ports[:2]))
        file = str(files[0])
        options = ("--endpoints-file", str(servers), "--routing", "least-outstanding")
        serving = stack.enter_context(gateway(*options, deployment=file))
        load = _Load(serving.host_port)
        load.learn()
        begun = load.start(clients)
        time.sleep(before_s)
        killed = time.monotonic()
        _kill(first)
        stack.enter_context(served(files[2], ports[2]))
        servers.write_text("".join(f"127.0.0.1:{port}\n" for port in ports[1:]))
        added = time.monotonic()
        time.sleep(max(AFTER_S, killed + AFTER_S - added))
        load.stop()
        logged = logged_since(since)
    used = {record["replica"] for record in logged if record["outcome"] == "ok"} - {None}
    failed = load.wrong
    assert not failed, f"{len(failed)} of {len(load.answered)} requests: {failed[:5]}"
    ok = sum(record["outcome"] == "ok" for record in logged)
    assert ok == len(load.answered) + load.learned, (ok, len(load.answered), load.learned)
    assert f"127.0.0.1:{ports[2]}" in used, f"the server that was added was not used: {used}"
    return {
        "requests": len(load.answered),
        "answered otherwise or not at all": len(failed),
        "p99 before, s": load.p99(begun, killed),
        "p99 of the ten seconds after the kill, s": load.p99(killed, killed + AFTER_S),
        "p99 once another was added, s": load.p99(added, added + AFTER_S),
        "servers used": len(used),
    }


class _Load:
    """Clients, each with one request at a time; a third of the requests are searches."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        questions = [problem.question for problem in load_problems("demo", limit=QUESTIONS)]
        self._bodies = [_body(question, number) for number, question in enumerate(questions)]
        self._expected: list[str] = []
        self.answered: list[tuple[float, float]] = []
        """When each was sent, and how long it took."""
        self.wrong: list[str] = []

    @property
    def learned(self) -> int:
        """Requests that were sent before the load."""
        return len(self._expected)

    def learn(self) -> None:
        """Ask everything once, undisturbed."""
        self._expected = [self._ask(body) for body in self._bodies]

    def start(self, clients: int) -> float:
        """Begin; when."""
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()
        return time.monotonic()

    def stop(self) -> None:
        """Let every client end what it has begun."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def p99(self, since: float, until: float) -> float:
        """The 99th percentile of the seconds that requests sent in this time took."""
        took = [seconds for sent, seconds in self.answered if since <= sent < until]
        return round(float(np.percentile(took, 99)), 3) if took else float("nan")

    def _work(self, number: int) -> None:
        while not self._stop.is_set():
            place = number % len(self._bodies)
            number += 5
            sent = time.monotonic()
            try:
                text = self._ask(self._bodies[place])
            except (OSError, http.client.HTTPException, ValueError) as error:
                text = f"{type(error).__name__}: {error}"
            self.answered.append((sent, time.monotonic() - sent))
            if text != self._expected[place]:
                self.wrong.append(text)

    def _ask(self, body: dict[str, Any]) -> str:
        """The text of a streamed answer, with its end."""
        connection = http.client.HTTPConnection(*self._address, timeout=120)
        # an idempotency key of its own: equal searches must not be taken for one
        headers = {"content-type": "application/json", "idempotency-key": os.urandom(8).hex()}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            said = answer.read().decode()
        finally:
            connection.close()
        events = [line[6:] for line in said.splitlines() if line.startswith("data: ")]
        if answer.status != 200 or events[-1:] != ["[DONE]"]:
            raise ValueError(f"{answer.status}: {said[-300:]}")
        deltas = [
            choice["delta"].get("content") or choice["finish_reason"] or ""
            for event in events[:-1]
            for choice in json.loads(event).get("choices", ())
        ]
        return "".join(deltas)


def _body(question: str, number: int) -> dict[str, Any]:
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "seed": number,
        "max_tokens": 96,
    }
    if number % 3 == 0:
        return {**body, "model": "demo:beam-search", "tts": {"n": 4}}
    return {**body, "temperature": 0}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill -9 of everything that serves, at once."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in family:
        each.kill()
    process.wait()
