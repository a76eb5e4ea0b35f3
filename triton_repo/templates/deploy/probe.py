"""Whether both models of a server really answer: one token generated, one text scored.

"Ready" means little to Triton: a model whose process died stays ready while every request fails.
Run inside the container, which has Python but not this toolkit: `python3 probe.py HTTP_PORT`.
"""

import json
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 20
GENERATE = {"input_ids": [0], "input_lengths": 1, "request_output_len": 1}
SCORE = {
    "inputs": [
        {"name": "input_ids", "datatype": "INT32", "shape": [1, 1], "data": [0]},
        {"name": "input_lengths", "datatype": "INT32", "shape": [1, 1], "data": [1]},
        {"name": "request_output_len", "datatype": "INT32", "shape": [1, 1], "data": [1]},
        {"name": "return_generation_logits", "datatype": "BOOL", "shape": [1, 1], "data": [True]},
    ]
}


def ask(url, request):
    """Post a request; exit with the reason unless it is answered."""
    data = json.dumps(request).encode()
    post = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    # past any proxy of the environment: the server is in this very container
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(post, timeout=TIMEOUT_S) as answer:
            json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            sys.exit(f"{url}: {error.code}: {error.read().decode(errors='replace')}")
    except (OSError, ValueError) as error:
        sys.exit(f"{url}: {error}")


if __name__ == "__main__":
    models = f"http://127.0.0.1:{int(sys.argv[1])}/v2/models"
    ask(f"{models}/generator/generate", GENERATE)
    ask(f"{models}/prm/infer", SCORE)
