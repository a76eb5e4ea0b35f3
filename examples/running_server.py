"""Search over a model that a server runs already: vLLM, SGLang, llama.cpp or trtllm-serve.

    pip install .
    vllm serve Qwen/Qwen2.5-1.5B-Instruct --port 8000
    python examples/running_server.py http://127.0.0.1:8000 Qwen/Qwen2.5-1.5B-Instruct

Nothing is compiled and no Triton is started. Here a rule in Python scores the steps; put your PRM
in its place (examples/own_prm.py), or a second server (docs/start/your-own-models.md).
"""

from __future__ import annotations

import argparse

from tts import Session, Step
from tts.build.spec import Deployment


def reward(question: str, steps: list[str]) -> float:
    """Prefers chains that state an answer, and short steps."""
    answered = r"\boxed{" in steps[-1]
    return 0.5 + 0.4 * answered - min(len(steps[-1]), 1000) / 2500


def deployment(url: str, tokenizer: str, context: int) -> Deployment:
    """The same as a YAML file with these fields (docs/start/your-own-models.md)."""
    server = {"url": url, "tokenizer": tokenizer, "max_seq_len": context}
    verifier = {"format": "rlhflow", "labels": {"positive": "+", "negative": "-"}}
    return Deployment.model_validate(
        {
            "name": "running-server",
            "target": "openai",
            "generator": {**server, "in_flight_requests": 32},
            # the section is required; its server is not asked while a function scores
            "verifier": {**server, **verifier, "in_flight_tokens": 32768},
        }
    )


def show(step: Step) -> None:
    """One line for each scored step, while the search goes on."""
    if step.score is not None:
        print(f"  {step.score:.2f}  {'.'.join(map(str, step.node)):10}  {step.text.strip()[:60]!r}")


def main() -> None:
    """Solve one question on the server."""
    parser = argparse.ArgumentParser(description="Search on a server that runs already.")
    parser.add_argument("url", help="such as http://127.0.0.1:8000, the part before /v1")
    parser.add_argument("tokenizer", help="OWNER/NAME on the Hugging Face hub, or a folder")
    parser.add_argument("--question", default="What is the sum of the first 20 odd numbers?")
    parser.add_argument("--context", type=int, default=4096, help="tokens, at most the server's")
    parser.add_argument("--n", type=int, default=8)
    given = parser.parse_args()
    served = deployment(given.url, given.tokenizer, given.context)
    with Session.open(served, verifier=reward, say=print) as session:
        result = session.solve(given.question, n=given.n, on_step=show)
    print(f"\n{given.question}\nanswer: {result.answer}")
    print(f"{result.usage.generated_tokens} tokens in {result.usage.generator_calls} requests")


if __name__ == "__main__":
    main()
