"""The page's files: whole, under a strict policy, and fetched again only when they have changed."""

import asyncio
import hashlib
import re

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import answered, serving

from tts.gateway.page.files import POLICY, STATIC, VENDOR
from tts.reports.page.assets import read_manifest

PACKAGES = read_manifest(VENDOR / "manifest.json")


@pytest.fixture
def get(tiny_deployment):
    """Status, headers and body of the answer to a GET."""

    def ask(path, **headers):
        async def go():
            endpoints = {"generator": ScriptedGenerator([[7]], [8]), "verifier": ScriptedVerifier()}
            async with serving(tiny_deployment, endpoints) as app:
                return await answered(app, path, None, "GET", **headers)

        return asyncio.run(go())

    return ask


def test_all_that_the_page_names_is_there(get):
    status, headers, html = get("/")
    assert status == 200
    assert headers["content-security-policy"] == POLICY
    named = re.findall(r'(?:src|href)="(/page/[^"]+)"', html.decode())
    assert len(named) == 7
    for path in named:
        assert get(path)[0] == 200, path
    for script in STATIC.glob("*.js"):
        for module in re.findall(r'from "\./([^"]+)"', script.read_text()):
            assert get(f"/page/{module}")[0] == 200, module
    style = (VENDOR / "katex.min.css").read_text()
    for font in re.findall(r"url\((fonts/[^)]+\.woff2)\)", style):
        status, headers, _ = get(f"/page/vendor/{font}")
        assert (status, headers["content-type"]) == (200, "font/woff2")


def test_an_unchanged_file_is_not_sent_again(get):
    _, headers, script = get("/page/vendor/katex.min.js")
    assert len(script) > 100_000
    request = {"if-none-match": headers["etag"]}
    status, again, nothing = get("/page/vendor/katex.min.js", **request)
    assert (status, again["etag"], nothing) == (304, headers["etag"], b"")
    assert get("/page/vendor/katex.min.css", **request)[0] == 200


def test_nothing_else_of_the_folder_is_served(get):
    for path in ("vendor/manifest.json", "../files.py", "page.html", "vendor/", ""):
        assert get(f"/page/{path}")[0] == 404


def test_the_policy_allows_no_inline_script_and_no_other_host():
    assert "default-src 'none'" in POLICY
    assert not re.search(r"unsafe|https?:|\*", POLICY)
    html = (STATIC / "page.html").read_text()
    assert not re.search(r"""\son\w+=|style=|https?://""", html)
    for script in STATIC.glob("*.js"):
        assert not re.search(r"innerHTML|\beval\(|new Function|https?://", script.read_text())


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_vendored_file_is_the_one_of_the_manifest(package):
    for each in package.files:
        assert hashlib.sha256((VENDOR / each.file).read_bytes()).hexdigest() == each.sha256
    assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package.integrity)
    assert "MIT" in (VENDOR / package.license_file).read_text()


def test_every_vendored_file_is_in_the_manifest():
    known = {"manifest.json"}
    for package in PACKAGES:
        known |= {package.license_file, *(each.file for each in package.files)}
    files = (file for file in VENDOR.rglob("*") if file.is_file())
    assert {file.relative_to(VENDOR).as_posix() for file in files} == known
