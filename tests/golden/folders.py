"""The run folders that are kept, and what is derived from them as it is compared.

`folders/` holds runs that were really made by the demo pair on a CPU, logs packed with gzip. They
are kept without checksums, which `unpacked` adds, so that they can be edited:

| folders | made by |
|---|---|
| `group` | `tts bench demo --strategy all` |
| `lockstep` ... `decoupled`, `speculative` | the schedules on the same problems |
| `interrupted`, `resumed` | a run that was killed, and the same continued to its end |
| `lockstep-interrupted` | one of schedule lockstep that was killed |
| `torn` | `interrupted`, cut within its last line |
| `damaged` | `resumed` with a broken line and a problem that is solved twice |
| `failed`, `own-reward` | of programs: a reward function that fails, and one that works |
| `program`, `conversation` | of programs: some wrong references; questions with a history |
| `unreferenced` | of a program that gave no reference answers |
| `servers` | on two servers |
| `shard-1`, `shard-2`, `merged` | two shards and their merge |
| the others | named for their option |
| `study` | a tiny study of real servers |
"""

import gzip
import json
import shutil
from pathlib import Path

from tts.runs.checks import write_summary
from tts.runs.folder import EVENTS, SUMMARY
from tts.runs.log import ChecksumChain

HERE = Path(__file__).parent
FOLDERS, EXPECTED = HERE / "folders", HERE / "expected"
CHECKOUT = str(HERE.parents[1])
GROUP = "group"
NO_RUNS = (GROUP, "study")


def run_names():
    """Every run that is kept but those of the study, also those within a group."""
    alone = [f.name for f in FOLDERS.iterdir() if f.name not in NO_RUNS]
    within = [f"{GROUP}/{f.name}" for f in (FOLDERS / GROUP).iterdir() if f.is_dir()]
    return sorted([*alone, *within])


def unpacked(name, where, change=bytes):
    """A copy of a folder in `where`, logs unpacked, changed and sealed."""
    copy = where / name
    for file in (FOLDERS / name).rglob("*"):
        target = copy / file.relative_to(FOLDERS / name)
        if file.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".gz":
            target.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copyfile(file, target)
    for log in copy.rglob(EVENTS):
        log.write_bytes(b"".join(_sealed(change(log.read_bytes()))))
    for summary in copy.rglob(SUMMARY):
        write_summary(summary.parent, json.loads(summary.read_text()))
    return copy


def _sealed(log):
    """The lines of a log with their checksums, but for those that are no JSON."""
    chain = ChecksumChain()
    for line in log.splitlines(keepends=True):
        try:
            json.loads(line)
        except ValueError:
            chain.fits(line)  # as its reader goes on
            yield line
        else:
            yield chain.seal(line.removesuffix(b"\n"))


def plain(derived, where):
    """As JSON has it: floats to 9 digits, paths without where the copies lie."""
    return json.loads(json.dumps(_plain(derived, str(where))))


def written(data):
    """The text that is kept of plain data: a line for each short part, for readable differences."""
    return f"{_lines(data, 0)}\n"


def _lines(value, depth):
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(short) + depth <= 100:
        return short
    indent = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        left, right = "{}"
    else:
        parts = [_lines(each, depth + 1) for each in value]
        left, right = "[]"
    return f"{left}\n{indent}" + f",\n{indent}".join(parts) + f"\n{' ' * depth}{right}"


def _plain(value, where):
    if isinstance(value, dict):
        return {str(name): _plain(each, where) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, where) for each in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, str):
        return value.replace(where, "/golden").replace(CHECKOUT, "/checkout")
    return value


def differences(now, before, place=""):
    """Where two pieces of plain data differ, each in a line."""
    if isinstance(now, dict) and isinstance(before, dict):
        for name in sorted(now.keys() | before.keys()):
            missing = object()
            one, other = now.get(name, missing), before.get(name, missing)
            if one is missing or other is missing:
                yield f"{place}/{name}: only {'before' if one is missing else 'now'}"
            else:
                yield from differences(one, other, f"{place}/{name}")
    elif isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        for number, (one, other) in enumerate(zip(now, before, strict=True)):
            yield from differences(one, other, f"{place}/{number}")
    elif type(now) is not type(before) or now != before:
        yield f"{place}: {now!r:.200}, was {before!r:.200}"
