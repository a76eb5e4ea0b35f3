"""Whether the models of a server really answer: one token generated, one text scored.

"Ready" means little to Triton: a model whose process died stays ready while every request fails.
Run inside the container, which has Python but not this toolkit: `python3 probe.py PORT MODEL...`.
"""

import json
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 20
ONE_TOKEN = {"input_ids": [0], "input_lengths": 1, "request_output_len": 1}
LOGITS = "return_generation_logits"
"""What a model that scores must be asked for."""


def ask(url, request=None):
    """The answer to a request, posted if there is one; exit with the reason if there is none."""
    data = None if request is None else json.dumps(request).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    # past any proxy of the environment: the server is in this very container
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            sys.exit(f"{url}: {error.code}: {error.read().decode(errors='replace')}")
    except (OSError, ValueError) as error:
        sys.exit(f"{url}: {error}")


if __name__ == "__main__":
    models = f"http://127.0.0.1:{int(sys.argv[1])}/v2/models"
    for model in sys.argv[2:]:
        inputs = ask(f"{models}/{model}/config")["input"]
        scores = any(each["name"] == LOGITS and not each["optional"] for each in inputs)
        ask(f"{models}/{model}/generate", ONE_TOKEN | ({LOGITS: True} if scores else {}))
