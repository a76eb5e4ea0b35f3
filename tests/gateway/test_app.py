"""What is where, for whom, and as what it is counted."""

import asyncio
import re

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import answered, serving

from tts.build.tokenizer import Tokenizer


@pytest.fixture
def get(tiny_deployment, tokenizer_folder):
    """Status, headers and body of the answers to requests, each a path and perhaps a method."""
    tokenizer = Tokenizer(tokenizer_folder)
    endpoints = {
        "generator": ScriptedGenerator([tokenizer.encode("1")], tokenizer.encode("\n\n")),
        "verifier": ScriptedVerifier(),
    }

    def got(*requests):
        async def go():
            async with serving(tiny_deployment, endpoints) as app:
                return [await answered(app, path, None, *method) for path, *method in requests]

        return asyncio.run(go())

    return got


def test_the_page_and_all_that_it_names_come_from_here_alone(get):
    ((status, headers, html),) = get(("/",))
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([^"]*)"', html.decode())
    files = [path for path in named if path.endswith((".js", ".css"))]
    assert len(files) >= 4
    for path, (status, headers, content) in zip(
        files, get(*((path,) for path in files)), strict=True
    ):
        kind = "text/javascript" if path.endswith(".js") else "text/css"
        assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert headers["x-content-type-options"] == "nosniff"
        assert content


def test_a_model_is_asked_for_by_its_name(get):
    names = ("tiny", "tiny:beam-search", "tiny:nonsense")
    one, search, other = get(*((f"/v1/models/{name}",) for name in names))
    assert (one[0], search[0], other[0]) == (200, 200, 404)
    assert b'"id":"tiny:beam-search"' in search[2]


def test_what_is_not_there_and_what_takes_another_method_say_so(get):
    missing, file, method = get(("/v1/nothing",), ("/page/nothing.js",), ("/tokenize", "GET"))
    assert (missing[0], file[0]) == (404, 404)
    assert b"There is nothing at" in missing[2]
    assert b"There is nothing at" in file[2]
    assert (method[0], method[1]["allow"]) == (405, "POST")


def test_requests_are_counted_by_route_and_not_by_what_a_client_makes_up(get):
    *_, (status, _, metrics) = get(
        ("/page/main.js",),
        ("/page/made-up",),
        ("/made-up",),
        ("/v1/models/made-up",),
        ("/metrics",),
    )
    assert status == 200
    routes = set(re.findall(r'endpoint="([^"]*)"', metrics.decode()))
    assert routes == {"/page/", "/v1/models/", "other"}
    assert set(re.findall(r'status="([^"]*)"', metrics.decode())) == {"200", "404"}
