"""The documentation's site builds without a warning, such as that of a broken link."""

import re

from tests.programs import ROOT, run

OUTSIDE = {"benchmarks/README.md", "benchmarks/gateway.md", "CONTRIBUTING.md", "CHANGELOG.md"}


def test_it_builds_without_a_broken_link_or_anchor(tmp_path):
    site = tmp_path / "site"
    built = run("docs", "--to", site)
    assert built.returncode == 0, built.stdout + built.stderr
    first = (site / "index.html").read_text()
    assert 'href="start/first-search/"' in first
    assert 'src="images/search-tree.png"' in first
    tune = (site / "guides" / "tune" / "index.html").read_text()
    assert "../../benchmarks/#" in tune
    works = (site / "explanation" / "how-it-works" / "index.html").read_text()
    assert 'class="mermaid"' in works
    assert "scripts/" not in re.findall(r'href="([^"]*)"', works)
    python = (site / "reference" / "python" / "index.html").read_text()
    assert "tts.session.session.Session" in python


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages | OUTSIDE | {"index.md"} == listed
