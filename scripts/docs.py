"""Build the documentation's site into site/, or serve it while you write: --serve, --to DIR.

Needs the extra `docs`, which `scripts/setup dev` installs. A warning, such as a broken link, fails
the build; tests/test_site.py builds it with every run of the tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Build or serve the site, from the pages as they are."""
    parser = argparse.ArgumentParser(prog="scripts/run docs", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="serve on 127.0.0.1:8000 and rebuild")
    parser.add_argument("--to", type=Path, default=ROOT / "site", help="default: site/")
    arguments = parser.parse_args()
    if importlib.util.find_spec("mkdocs") is None:
        sys.exit("error: mkdocs is not installed here: scripts/setup dev")
    command = [sys.executable, "-m", "mkdocs"]
    if arguments.serve:
        command += ["serve", "--livereload"]
    else:
        command += ["build", "--strict", "--clean", "--site-dir", str(arguments.to.resolve())]
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # a page of advice, about versions that we do not pin
    os.execv(command[0], [*command, "--config-file", str(ROOT / "mkdocs.yml")])


if __name__ == "__main__":
    main()
