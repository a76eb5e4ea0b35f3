"""What third parties wrote is what was fetched, and can stand in a page."""

import hashlib
import re

import pytest

from tts.reports.page.assets import (
    SCRIPTS,
    STATIC,
    STYLES,
    THEME,
    VENDOR,
    packages,
    scripts,
    styles,
)


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_a_vendored_file_is_the_one_of_the_manifest(package):
    for each in package.files:
        assert hashlib.sha256((VENDOR / each.file).read_bytes()).hexdigest() == each.sha256
    assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package.integrity)
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.version)
    assert "Copyright" in (VENDOR / package.license_file).read_text()


def test_every_file_is_in_the_manifest_or_the_page():
    known = {"manifest.json"}
    for package in packages():
        known |= {package.license_file, *(each.file for each in package.files)}
    files = (file for file in VENDOR.rglob("*") if file.is_file())
    assert {file.relative_to(VENDOR).as_posix() for file in files} == known
    own = {file.name for file in STATIC.iterdir() if file.is_file()}
    assert own == {*SCRIPTS, *STYLES, THEME}


def test_nothing_ends_the_element_that_it_stands_in():
    for script in scripts(charts=True, trees=True, tex=True):
        assert not re.search(r"</script|<!--|<script", script, re.IGNORECASE)
        assert "\r" not in script
    style = styles(tex=True)
    assert "<" not in style
    assert set(re.findall(r"url\(([^;)]+)", style)) == {"data:font/woff2"}


def test_the_pages_own_scripts_evaluate_no_text_and_name_no_network():
    for name in SCRIPTS:
        text = (STATIC / name).read_text()
        assert not re.search(
            r"\beval\(|new Function|innerHTML\b.*\+|fetch\(|XMLHttp|https?://(?!www\.w3\.org/2000/svg)",
            text,
        )
