"""Write requirements.lock: the pins of constraints.txt, each with the hashes of its wheels.

scripts/setup and the Dockerfile accept no file with another hash. The hashes are those that PyPI
names, asked by uv; with the CPU build of torch, which PyPI has not, as scripts/setup finds it.

    pip install uv && scripts/run lock    # after a change of constraints.txt
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
LOCK = ROOT / "requirements.lock"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
HEADER = """\
# The wheels that may be installed: written by `scripts/run lock` from constraints.txt, not by hand.
"""


def main() -> None:
    """Write the lock file anew."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    if shutil.which("uv") is None:
        sys.exit("error: uv, which asks PyPI for the hashes, is not on PATH: pip install uv")
    locked = locked_by_uv()
    (torch,) = (line for line in locked.splitlines(keepends=True) if line.startswith("torch=="))
    version = torch.removeprefix("torch==").split()[0]
    cpu_build = f"{torch}    --hash=sha256:{sha256_of_cpu_torch(version)} \\\n"
    LOCK.write_text(HEADER + locked.replace(torch, cpu_build), encoding="utf-8")
    print(f"{LOCK}: {locked.count('--hash=') + 1} wheels")


def locked_by_uv() -> str:
    """The pins for every platform, in the format of pip's requirements files."""
    compile_ = ["uv", "pip", "compile", "--no-deps", "--universal", "--python-version", "3.11"]
    only_hashes = ["--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate"]
    command = [*compile_, *only_hashes, "--quiet", str(PINS)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def sha256_of_cpu_torch(version: str) -> str:
    """The hash of torch's CPU build for this machine and this Python, in hexadecimal.

    Ends the program if neither this machine's pip nor PyTorch's own index has one.
    """
    sources = [f"torch=={version}+cpu"], ["--index-url", TORCH_INDEX, f"torch=={version}"]
    with tempfile.TemporaryDirectory(prefix="tts-lock-") as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        for source in sources:
            if subprocess.run([*pip, *source], stderr=subprocess.DEVNULL).returncode == 0:
                (wheel,) = Path(folder).iterdir()
                return hashlib.sha256(wheel.read_bytes()).hexdigest()
    sys.exit(f"error: no CPU build of torch {version}: see `pip download torch=={version}+cpu`")


if __name__ == "__main__":
    main()
