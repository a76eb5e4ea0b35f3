"""The page's files: whole, under a strict policy, and fetched again only when they have changed."""

import re

from tts.gateway.page import POLICY, STATIC


def test_all_that_the_page_names_is_there(ask):
    ((status, headers, html),) = ask(("/",), whole=True)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"] == POLICY
    named = re.findall(r'(?:src|href)="/page/([^"]+)"', html.decode())
    assert len(named) == 4
    for script in STATIC.glob("*.js"):
        named += re.findall(r'from "\./([^"]+)"', script.read_text())
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
    found = ask(*((f"/page/{path}",) for path in named), whole=True)
    for path, (status, headers, content) in zip(named, found, strict=True):
        kind = kinds[path.rpartition(".")[2]]
        assert (status, headers["content-type"]) == (200, kind), path
        assert headers["x-content-type-options"] == "nosniff"
        assert content


def test_an_unchanged_file_is_not_sent_again(ask):
    path = "/page/viewer.js"
    ((_, headers, script),) = ask((path,), whole=True)
    assert len(script) > 100_000
    known = {"if-none-match": headers["etag"]}
    again, other = ask((path, None, known), ("/page/viewer.css", None, known), whole=True)
    assert (again[0], again[1]["etag"], again[2]) == (304, headers["etag"], b"")
    assert other[0] == 200


def test_nothing_else_of_the_folder_is_served(ask):
    paths = ("manifest.json", "../files.py", "page.html", "vendor/katex.min.js", "")
    assert {status for status, _ in ask(*((f"/page/{path}",) for path in paths))} == {404}


def test_the_policy_allows_no_inline_script_and_no_other_host():
    assert "default-src 'none'" in POLICY
    assert not re.search(r"unsafe|https?:|\*", POLICY)
    html = (STATIC / "page.html").read_text()
    assert not re.search(r"""\son\w+=|style=|https?://""", html)
    for script in STATIC.glob("*.js"):
        assert not re.search(r"innerHTML|\beval\(|new Function|https?://", script.read_text())
