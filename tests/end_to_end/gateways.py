"""A gateway in a process of its own, and clients for it."""

import contextlib
import re
import signal

import openai

SERVING = re.compile(r"Serving \S+ at (\S+)/v1 ")


def started(tts, *arguments, deployment="demo"):
    """A gateway that serves: its process, and its address."""
    process = tts.start("gateway", deployment, "--port", 0, *arguments)
    said = []
    for line in process.stderr:
        said.append(line)
        if found := SERVING.search(line):
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
    """OpenAI's own client, which repeats nothing."""
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, **options)
