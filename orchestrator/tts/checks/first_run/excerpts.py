"""The part of a log that may be attached to a bug report: informative lines, without secrets.

No line of a log is taken that is neither of a known form nor a warning or an error, and in every
text secrets, the texts of prompts, this machine's name and the user's home folder are replaced.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tts.build.spec import Deployment
from tts.serving.server.triton_log import read_start_log

MAX_LINES = 200
MAX_COLUMNS = 300
_TELLING = re.compile(
    r"^# tts: |\[(TRT-LLM|TensorRT-LLM)\]\s?\[(W|E|WARNING|ERROR)\]|^E\d{4} |^tts: |error|fail",
    re.IGNORECASE,
)
_SECRETS = (
    # a token by its form
    (r"\b(hf_|nvapi-|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[\w-]{8,}", r"\1[removed]"),
    (r"\bAKIA[0-9A-Z]{12,}", "[removed]"),
    (r"\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*", "[removed]"),  # JSON web token
    # a secret by what stands before it
    (
        r"(?i)\b([\w-]*(?:token|password|passwd|secret|api[_-]?key|credential)s?[\"']?\s*[=:]\s*)"
        r"[\"']?(?!\d+\b)[^\s\"',;]+",
        r"\1[removed]",
    ),
    (r"(?i)\b(authorization[\"']?\s*[=:]\s*)(?:\w+\s+)?[^\s\"',;]+", r"\1[removed]"),
    (r"(?i)\b(bearer\s+)[\w.~+/=-]+", r"\1[removed]"),
    (r"(\w+://)[^\s/@]+@", r"\1[removed]@"),  # user and password of an address
)


def telling_lines(lines: Iterable[str]) -> list[str]:
    """The lines of a log that a report shows: memory, warnings, errors and notes of ours."""
    told = []
    for line in lines:
        if _TELLING.search(line) or read_start_log([line]):
            told.append(line.strip()[:MAX_COLUMNS])
    if len(told) > MAX_LINES:  # causes stand at the beginning, ends at the end
        half = MAX_LINES // 2
        told = [*told[:half], f"[{len(told) - 2 * half} more lines]", *told[-half:]]
    return told


def without_secrets(text: str) -> str:
    """A text in which tokens, passwords and keys are replaced, as far as their form tells them."""
    for pattern, instead in _SECRETS:
        text = re.sub(pattern, instead, text)
    return text


def scrubbed(text: str, deployment: Deployment) -> str:
    """A text without secrets, the deployment's prompts, the machine's name and the home folder."""
    for prompt in sorted(set(_prompts(deployment)), key=len, reverse=True):
        text = text.replace(prompt, "[prompt]")
    text = without_secrets(text)
    if (home := str(Path.home())) != "/":
        text = text.replace(home, "~")
    if len(name := platform.node()) > 3:
        text = re.sub(rf"\b{re.escape(name)}\b", "[this machine]", text)
    return text


def _prompts(deployment: Deployment) -> Iterator[str]:
    """The texts of a deployment that go into prompts, whole and by line, plain and quoted."""
    verifier = deployment.verifier_model
    template = verifier.template
    texts = [deployment.generator.system_prompt, verifier.system_prompt, verifier.prompt]
    texts += [template.head, template.answer, template.turn] if template else []
    for text in filter(None, texts):
        for part in (text, *text.splitlines()):
            for form in (part, json.dumps(part)[1:-1], repr(part)[1:-1]):
                if len(form.strip()) > 7:  # a word of its own would be cut out of everything
                    yield form.strip()
