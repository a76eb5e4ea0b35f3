"""Packages that look installed: a module and its entry points in a folder on sys.path."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "strategies.md"


def install(monkeypatch, folder, package, module, source, entry_points, group="tts.strategies"):
    """Put a package with one module into `folder`; `entry_points` maps names to objects."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    (folder / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.invalidate_caches()


def install_the_example(monkeypatch, folder):
    """Install the strategy that docs/reference/strategies.md shows, as it is shown there."""
    text = PAGE.read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (project,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    entry_points = tomllib.loads(project)["project"]["entry-points"]["tts.strategies"]
    install(monkeypatch, folder, "tts-shortest", "shortest", source, entry_points)
