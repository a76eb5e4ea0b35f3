"""The page's files: whole, under a strict policy, and fetched again only when they have changed."""

import hashlib
import re

import pytest

from tts.gateway.page.files import POLICY, STATIC, VENDOR
from tts.reports.page.assets import read_manifest

PACKAGES = read_manifest(VENDOR / "manifest.json")


def test_all_that_the_page_names_is_there(ask):
    ((status, headers, html),) = ask(("/",), whole=True)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"] == POLICY
    named = re.findall(r'(?:src|href)="/page/([^"]+)"', html.decode())
    assert len(named) == 7
    for script in STATIC.glob("*.js"):
        named += re.findall(r'from "\./([^"]+)"', script.read_text())
    style = (VENDOR / "katex.min.css").read_text()
    named += (f"vendor/{font}" for font in re.findall(r"url\((fonts/[^)]+\.woff2)\)", style))
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
    found = ask(*((f"/page/{path}",) for path in named), whole=True)
    for path, (status, headers, content) in zip(named, found, strict=True):
        kind = kinds.get(path.rpartition(".")[2], "font/woff2")
        assert (status, headers["content-type"]) == (200, kind), path
        assert headers["x-content-type-options"] == "nosniff"
        assert content


def test_an_unchanged_file_is_not_sent_again(ask):
    path = "/page/vendor/katex.min.js"
    ((_, headers, script),) = ask((path,), whole=True)
    assert len(script) > 100_000
    known = {"if-none-match": headers["etag"]}
    again, other = ask((path, None, known), ("/page/vendor/katex.min.css", None, known), whole=True)
    assert (again[0], again[1]["etag"], again[2]) == (304, headers["etag"], b"")
    assert other[0] == 200


def test_nothing_else_of_the_folder_is_served(ask):
    paths = ("vendor/manifest.json", "../files.py", "page.html", "vendor/", "")
    assert {status for status, _ in ask(*((f"/page/{path}",) for path in paths))} == {404}


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
