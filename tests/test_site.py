"""The documentation's site: links are made its own, and it builds without a warning."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripts import site_links
from scripts.programs import ROOT, command


def test_it_builds_without_a_broken_link_or_anchor(tmp_path):
    site = tmp_path / "site"
    built = subprocess.run(command("docs", "--to", site), capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    memory = (site / "explanation" / "memory" / "index.html").read_text()
    assert "../../benchmarks/#" in memory
    assert 'class="mermaid"' in (site / "explanation" / "how-it-works" / "index.html").read_text()
    assert "tts.session.session.Session" in (site / "reference" / "api" / "index.html").read_text()


@pytest.mark.parametrize(
    ("page", "text", "wanted"),
    [
        ("reference/x.md", "[a](../guides/gpu.md#b)", "[a](../guides/gpu.md#b)"),
        ("reference/x.md", "[a](../../benchmarks/README.md#b)", "[a](../benchmarks/README.md#b)"),
        ("decisions.md", "[a](../CONTRIBUTING.md)", "[a](CONTRIBUTING.md)"),
        ("benchmarks/README.md", "[a](../docs/guides/gpu.md)", "[a](../guides/gpu.md)"),
        ("benchmarks/README.md", "![a](../docs/images/b.svg)", "![a](../images/b.svg)"),
        ("CONTRIBUTING.md", "[`a`](docs/decisions.md)", "[`a`](decisions.md)"),
        ("decisions.md", "[the script](../scripts/test)", "the script"),
        ("decisions.md", "[a](https://b/c.md)", "[a](https://b/c.md)"),
        ("decisions.md", "```\n[a](../scripts/test)\n```", "```\n[a](../scripts/test)\n```"),
    ],
)
def test_links_lead_to_the_same_page_on_the_site(page, text, wanted):
    shown = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert site_links.on_page_markdown(text, shown, None, None) == wanted


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= listed
    assert {str(Path(page)) for page in site_links.outside_pages()} <= listed
