"""Requests made up from the gateway's OpenAPI document, valid and not, by schemathesis."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

MODES = ("positive", "negative")


def run(address: str, count: int, seed: int) -> Counter[str]:
    """So many requests over all operations; how often which operation answered with which status.

    An answer of 500 and more that is not in the document raises AssertionError.
    """
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.core.result import Ok

    warnings.simplefilter("ignore")
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    seen: Counter[str] = Counter()
    asked = [each for each in operations if each.body or each.path_parameters or each.query]
    share = max(1, count // (len(asked) * len(MODES)))
    with requests.Session() as session:
        for operation in operations:
            for mode in MODES:
                cases = operation.as_strategy(generation_mode=GenerationMode(mode))
                _ask(cases, session, address, share, seed, seen)
    return seen


def _ask(
    cases: st.SearchStrategy[Any],
    session: requests.Session,
    address: str,
    count: int,
    seed: int,
    seen: Counter[str],
) -> None:
    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "demo"  # others are refused before anything else is looked at
        try:
            answer = case.call(base_url=address, session=session, timeout=60)
        except (requests.exceptions.InvalidHeader, UnicodeError, ValueError):
            return  # what the client cannot send
        seen[f"{case.operation.label}: {answer.status_code}"] += 1
        assert answer.status_code < 500, (answer.status_code, answer.text, case.as_curl_command())

    try:
        ask()
    except Exception as error:
        if type(error).__name__ != "Unsatisfiable":
            raise  # an operation without parameters has no wrong requests
