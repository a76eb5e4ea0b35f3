"""Install the wheel in clean environments of other Python versions, and use it there.

Without the CPU server (extras `cpu` and `triton`) everything that needs none must work, and what
does need it must say what to install. With it the demo must give the same trees as anywhere: on
Triton, and on embedded engines where the bundled Triton does not exist.

    scripts/run check_install                    # without the CPU server, each Python found
    scripts/run check_install --cpu python3.12   # with it: build, serve and search, too
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("python3.10", "python3.11", "python3.12", "python3.13")
DEMO_DIGEST = "97621135745848d2"
"""The digest of `tts bench demo --n 16 --limit 40`, on every Python."""
NO_TRITON_FROM = (3, 13)
"""The bundled Triton needs numpy 1, which ends before."""
INSTALL_S = 400.0
"""A package index that takes longer is not there for our purposes."""
COMMAND_S = 300.0
"""The demo on a busy machine is done long before."""
NEEDS_NO_SERVER = (
    ("--help",),
    ("doctor",),
    ("plan", "demo-gpu"),
    ("lint", "demo-gpu"),
    ("build-engines", "demo-gpu", "--dry-run"),
    ("simulate", "--limit", "2", "--n", "4"),
)
NEEDS_SERVER = (("build-engines", "demo"), ("serve", "demo"), ("bench", "demo", "--limit", "2"))


class Environment:
    """A virtual environment with the wheel and a home of its own."""

    def __init__(self, python: str, folder: Path, wheel: Path, extra: str) -> None:
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        self._bin = folder / "venv" / "bin"
        self._home = folder / "home"
        pip = [str(self._bin / "pip"), "--disable-pip-version-check", "--quiet", "--timeout", "15"]
        try:
            done = subprocess.run(
                [*pip, "--retries", "1", "install", f"{wheel}{extra}"],
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_S,
            )
        except subprocess.TimeoutExpired:
            sys.exit(f"{python}: pip failed\nIt was not done within {INSTALL_S:.0f} s.")
        if done.returncode:
            sys.exit(f"{python}: pip failed\n{done.stderr}")

    @property
    def version(self) -> tuple[int, int]:
        """The major and minor version of its Python."""
        code = "import sys; print(*sys.version_info[:2])"
        said = subprocess.check_output([self._bin / "python", "-c", code], text=True)
        major, minor = said.split()
        return int(major), int(minor)

    def tts(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output of a command."""
        try:
            done = subprocess.run(
                [self._bin / "tts", *arguments],
                capture_output=True,
                text=True,
                cwd=self._bin.parent,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self._home),
                    "TTS_HOME": str(self._home),
                },
                check=False,
                timeout=COMMAND_S,
            )
        except subprocess.TimeoutExpired:
            return -1, f"not done within {COMMAND_S:.0f} s"
        return done.returncode, done.stdout + done.stderr

    def digest(self) -> str:
        """The digest of the trees of its one run."""
        (summary,) = self._home.glob("runs/*/summary.json")
        return str(json.loads(summary.read_text())["tree_digest"])


def main() -> int:
    """Try each Python; 1 if one of them did not work."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help=f"[{' '.join(VERSIONS)}]")
    parser.add_argument(
        "--cpu", action="store_true", help="install the CPU server and run the demo"
    )
    options = parser.parse_args()

    found = {python: find(python) for python in options.pythons or VERSIONS}
    pythons = {name: path for name, path in found.items() if path}
    if missing := [name for name in options.pythons if name not in pythons]:
        parser.error(f"there is no {missing[0]} here")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        build = ["-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run([sys.executable, *build], cwd=ROOT, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        for name, python in pythons.items():
            place = Path(folder) / Path(name).name
            environment = Environment(python, place, wheel, "[cpu,triton]" if options.cpu else "")
            faults = [*without_server(environment)]
            faults += with_server(environment) if options.cpu else messages(environment)
            print(f"{name}: {'; '.join(faults) or 'ok'}", flush=True)
            wrong += len(faults)
            shutil.rmtree(place)
    return 1 if wrong or not pythons else 0


def find(python: str) -> str | None:
    """The interpreter of a name on PATH, or else one that pyenv or uv keeps; None without any."""
    kept = (".pyenv/versions/*/bin", ".local/share/uv/python/*/bin")
    places = [file for pattern in kept for file in sorted(Path.home().glob(f"{pattern}/{python}"))]
    for candidate in [shutil.which(python), *places]:
        # what is on PATH may be no more than a version manager's stand-in
        if candidate and not subprocess.run([candidate, "-c", ""], capture_output=True).returncode:
            return str(candidate)
    return None


def without_server(environment: Environment) -> list[str]:
    """What went wrong of that which needs no server."""
    faults = []
    for command in NEEDS_NO_SERVER:
        status, output = environment.tts(*command)
        # the doctor says by its status whether the CPU server could run
        if not 0 <= status <= (1 if command == ("doctor",) else 0):
            faults.append(f"tts {' '.join(command)} ended with {status}: {last_lines(output)}")
    return faults


def messages(environment: Environment) -> list[str]:
    """Commands that need the server and do not say what to install."""
    advice = ("openvino-genai>=", "Python 3.10 to 3.12")
    faults = []
    for command in NEEDS_SERVER:
        status, output = environment.tts(*command)
        if status not in (1, 2) or not any(each in " ".join(output.split()) for each in advice):
            faults.append(f"tts {' '.join(command)} ended with {status}: {last_lines(output)}")
    return faults


def with_server(environment: Environment) -> list[str]:
    """What went wrong in building, serving and searching."""
    kind = "triton" if environment.version < NO_TRITON_FROM else "embedded"
    search = ("bench", "demo", "--n", "16", "--limit", "40", "--server", kind)
    for command in (("build-engines", "demo"), search):
        status, output = environment.tts(*command)
        if status:
            return [f"tts {' '.join(command)} ended with {status}: {last_lines(output)}"]
    digest = environment.digest()
    return [] if digest.startswith(DEMO_DIGEST) else [f"the trees have another digest: {digest}"]


def last_lines(output: str) -> str:
    """The end of what a command said."""
    return " / ".join(output.strip().splitlines()[-3:])


if __name__ == "__main__":
    sys.exit(main())
