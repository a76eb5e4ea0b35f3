"""The programs below scripts/, by name: `scripts/run bench.schedules --help`.

A program is a module that does something when it is run, or a package with a `__main__`; its name
is its path, with dots. Its docstring says what it is for, and its first line is shown in the list.
"""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository, from which programs import each other as `scripts.bench`, for example."""
TTS = "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"
"""What `python -c` runs as the command `tts`, in any environment."""


def programs() -> dict[str, str]:
    """The first line of each program's docstring, by its name."""
    scripts = ROOT / "scripts"
    docstrings = {}
    for file in [*scripts.glob("*.py"), *scripts.glob("*/*.py"), *scripts.glob("*/*/__main__.py")]:
        source = file.read_text(encoding="utf-8")
        if '\nif __name__ == "__main__":' in source and file != Path(__file__).resolve():
            parts = file.relative_to(scripts).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__main__" else parts)
            docstrings[name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return dict(sorted(docstrings.items(), key=lambda program: ("." in program[0], program)))


def main() -> None:
    """Run the program that the command line names, with the arguments that follow."""
    available = programs()
    if len(sys.argv) < 2 or sys.argv[1] not in available:
        widest = max(map(len, available))
        lines = "\n".join(f"  {name:{widest}}  {line}" for name, line in available.items())
        usage = f"usage: scripts/run PROGRAM [ARGUMENT ...]\n\n{lines}"
        if len(sys.argv) < 2:
            print(usage)
            return
        sys.exit(f"error: there is no program {sys.argv[1]!r}\n{usage}")
    name = sys.argv.pop(1)
    sys.path[0] = str(ROOT)  # in place of the folder of this file
    importlib.import_module("scripts")
    runpy.run_module(f"scripts.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
