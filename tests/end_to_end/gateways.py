"""A gateway in a process of its own, and clients for it."""

import contextlib
import re
import signal
import socket
import time
from urllib.parse import urlsplit

import httpx2
import openai

SERVING = re.compile(r"Serving \S+ at (\S+)/v1 ")


def started(tts, *arguments, deployment="demo"):
    """A gateway that serves: its process, and its address."""
    process = tts.start("gateway", deployment, "--port", 0, *arguments)
    said = []
    for line in process.stderr:
        said.append(line)
        if found := SERVING.search(line):
            assert said[0].startswith("Opening the engines of "), "nothing while they load"
            return process, found[1]
    raise AssertionError("".join(said))


@contextlib.contextmanager
def gateway(tts, *arguments, deployment="demo"):
    """The address of a gateway, for as long as the block lasts."""
    process, address = started(tts, *arguments, deployment=deployment)
    try:
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    assert process.returncode == 0, err


def client(address, **options):
    """OpenAI's own client, which repeats nothing and leaves no connection open."""
    headers = {"connection": "close"}
    return openai.OpenAI(
        base_url=f"{address}/v1",
        api_key="none",
        max_retries=0,
        default_headers=headers,
        **options,
    )


def reply(address, path, body=None, key=None):
    """What a path answers, to a GET or to a POST of this body."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    method = "GET" if body is None else "POST"
    return httpx2.request(method, f"{address}{path}", json=body, headers=headers, timeout=120)


def connected(address, timeout=60):
    """A bare connection to a gateway."""
    at = urlsplit(address)
    return socket.create_connection((at.hostname, at.port), timeout)


def post(body: bytes, extra: str = "") -> bytes:
    """A whole request for a chat, as it is sent; `extra` are lines of its head."""
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += f"content-type: application/json\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def eventually(read):
    """What `read` gives once it gives something: some things come a moment later."""
    deadline = time.monotonic() + 60
    while not (found := read()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return found
