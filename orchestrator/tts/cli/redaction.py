"""Command lines as they are kept: without tokens, passwords and keys."""

from __future__ import annotations

import re

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


def without_secrets(text: str) -> str:
    """A text in which tokens, passwords and keys are replaced, as far as their form tells them."""
    for pattern, instead in _SECRETS:
        text = re.sub(pattern, instead, text)
    return text
