"""A gateway in a process of its own, and clients for it."""

import contextlib
import re
import signal

import openai

SERVING = re.compile(r"Serving \S+ at (\S+)/v1 ")


@contextlib.contextmanager
def gateway(tts, *arguments):
    """The address of a gateway of the demo pair, for as long as the block lasts."""
    process = tts.start("gateway", "demo", "--port", 0, *arguments)
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := SERVING.search(line):
                break
        else:
            raise AssertionError("".join(said))
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    assert process.returncode == 0, err


def client(address, **options):
    """OpenAI's own client, which repeats nothing."""
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, **options)
