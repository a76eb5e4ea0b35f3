"""How much memory there is: the machine's, or that of a control group around the process."""

from pathlib import Path

import pytest

from tts.build.machine_limits import memory_available, memory_limit

MEMINFO = "MemTotal:       2000 kB\nMemFree: 10 kB\nMemAvailable:    900 kB\nHugePages_Total:   0\n"


def machine(root: Path, groups: str = "", **limits: str) -> Path:
    """A tree with proc and sys; keywords are files below sys/fs/cgroup, "__" for "/"."""
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": groups}
    files |= {f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in limits.items()}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "size", "of"),
    [
        ("", {}, 2_048_000, "machine"),
        ("0::/a/b\n", {}, 2_048_000, "machine"),
        ("0::/a/b\n", {"a__b__memory.max": "4096\n"}, 4096, "group"),
        ("0::/a/b\n", {"a__b__memory.max": "max\n", "a__memory.max": "8192\n"}, 8192, "group"),
        ("0::/a\n", {"a__memory.max": "9999999\n"}, 2_048_000, "machine"),
        ("0::/elsewhere\n", {"memory.max": "4096\n"}, 4096, "group"),  # in a container
        (
            "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n",
            {"memory__a__memory.limit_in_bytes": "4096\n"},
            4096,
            "group",
        ),
        (
            "4:memory:/a\n",
            {"memory__memory.limit_in_bytes": "9223372036854771712\n"},
            2_048_000,
            "machine",
        ),
    ],
)
def test_the_smallest_limit_around_the_process_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], size: int, of: str
) -> None:
    limit = memory_limit(machine(tmp_path, groups, **limits))
    assert limit is not None
    assert limit.size == size
    assert of in limit.of


def test_what_is_available_now(tmp_path: Path) -> None:
    assert memory_available(machine(tmp_path)) == 900 * 1024


def test_a_system_that_does_not_tell_sets_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    assert memory_available(tmp_path) is None


def test_this_machine_tells() -> None:
    limit, available = memory_limit(), memory_available()
    assert limit is not None
    assert available is not None
    assert limit.size > 2**28
