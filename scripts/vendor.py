"""Fetch what pages hold of third parties, and verify it.

orchestrator/tts/reports/page/static/vendor/manifest.json names each package, its version and the
integrity of its archive on npm; the files are beside it, for the report's page and the gateway's.
This fetches the archives with npm, compares them with the manifest, and writes the files again;
nothing else may have changed.

    scripts/run vendor                  # fetch what the manifest says, verify, write
    scripts/run vendor vega@6.3.0       # take another version of a package into the manifest
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import msgspec

from tts.reports.page.assets import MANIFEST, VENDOR, Package, read_manifest

_IMPORT = "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';\n"
_EXPORT = "export { expression as expressionInterpreter };\n"


def main() -> None:
    """Fetch every package that the manifest names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", metavar="NAME@VERSION")
    arguments = parser.parse_args()
    every = read_manifest(MANIFEST)
    for argument in arguments.packages:
        name, _, version = argument.rpartition("@")
        (package,) = (each for each in every if each.name == name)
        package.version, package.integrity = version, None
        for file in package.files:
            file.sha256 = None
    for package in every:
        fetch(package)
        print(f"{package.name} {package.version}: {len(package.files)} files")
    text = msgspec.json.format(msgspec.json.encode(every), indent=2)
    MANIFEST.write_bytes(text + b"\n")


def fetch(package: Package) -> None:
    """Fetch one package and write its files; ends the script if it is not what it was."""
    archive = packed_by_npm(f"{package.name}@{package.version}")
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    package.integrity = same(package.name, package.integrity, integrity)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for each in package.files:
            content = read(files, each.source)
            if package.name == "vega-interpreter":
                content = as_script(content)
            each.sha256 = same(each.file, each.sha256, sha256(content))
            target = VENDOR / each.file
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(content)
        has_license = "package/LICENSE" in files.getnames()
        licence = read(files, "LICENSE") if has_license else license_of(package)
        (VENDOR / package.license_file).write_bytes(licence)


def license_of(package: Package) -> bytes:
    """The licence of vega-interpreter, whose archive has none: its repository is vega's."""
    if package.name != "vega-interpreter":
        sys.exit(f"{package.name} {package.version}: its archive has no LICENSE")
    return (VENDOR / "vega.LICENSE").read_bytes()


def packed_by_npm(name: str) -> bytes:
    """The archive of a package, as npm has it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


def read(files: tarfile.TarFile, name: str) -> bytes:
    """A file of a package's archive; of a script without the line that names a source map."""
    file = files.extractfile(f"package/{name}")
    assert file is not None
    content = file.read()
    if not name.endswith(".js"):
        return content
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"//# sourceMappingURL="))


def as_script(module: bytes) -> bytes:
    """The interpreter, which is published as a module only, as a script that defines it on vega."""
    text = module.decode()
    if _IMPORT not in text or _EXPORT not in text:
        sys.exit("vega-interpreter imports or exports something else than it did: see as_script")
    text = text.replace(
        _IMPORT, "const { ascending, isString, DisallowedObjectProperties } = vega;\n"
    )
    text = text.replace(_EXPORT, "vega.expressionInterpreter = expression;\n")
    return f"(() => {{\n{text}}})();\n".encode()


def same(what: str, recorded: str | None, actual: str) -> str:
    """The hash that was found; ends the script if the manifest knows another one."""
    if recorded not in (None, actual):
        sys.exit(f"{what}: its hash is {actual}, the manifest says {recorded}")
    return actual


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
