"""What the process may use: the machine's cores and memory, or a control group's."""

import pytest

from tts.base.machine_limits import memory_available, memory_limit, usable_cores

MEMINFO = "MemTotal:       2000 kB\nMemFree: 10 kB\nMemAvailable:    900 kB\nHugePages_Total:   0\n"


def machine(root, groups="", limits=()):
    """A tree with proc and sys; `limits` are files below sys/fs/cgroup."""
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": groups}
    files |= {f"sys/fs/cgroup/{name}": text for name, text in dict(limits).items()}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "size", "of"),
    [
        ("", {}, 2_048_000, "machine"),
        ("0::/a/b\n", {}, 2_048_000, "machine"),
        ("0::/a/b\n", {"a/b/memory.max": "4096\n"}, 4096, "group"),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "8192\n"}, 8192, "group"),
        ("0::/a\n", {"a/memory.max": "9999999\n"}, 2_048_000, "machine"),
        ("0::/elsewhere\n", {"memory.max": "4096\n"}, 4096, "group"),  # in a container
        (
            "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n",
            {"memory/a/memory.limit_in_bytes": "4096\n"},
            4096,
            "group",
        ),
        (
            "4:memory:/a\n",
            {"memory/memory.limit_in_bytes": "9223372036854771712\n"},
            2_048_000,
            "machine",
        ),
    ],
)
def test_the_smallest_limit_around_the_process_counts(tmp_path, groups, limits, size, of):
    limit = memory_limit(machine(tmp_path, groups, limits))
    assert limit.size == size
    assert of in limit.of


def test_what_is_available_now(tmp_path):
    assert memory_available(machine(tmp_path)) == 900 * 1024


def test_a_system_that_does_not_tell_sets_no_limit(tmp_path):
    assert memory_limit(tmp_path) is None
    assert memory_available(tmp_path) is None


def test_this_machine_tells():
    limit, available = memory_limit(), memory_available()
    assert available is not None
    assert limit.size > 2**28


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("", {}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/elsewhere\n", {"cpu.max": "250000 100000\n"}, 2),  # in a container
        ("0::/a\n", {"a/cpu.max": "50000 100000\n"}, 1),
        ("0::/a\n", {"a/cpu.max": "1600000 100000\n"}, 8),
        (
            "4:cpu,cpuacct:/x\n0::/\n",
            {"cpu/x/cpu.cfs_quota_us": "400000\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            4,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_a_control_group_may_give_fewer_cores(tmp_path, monkeypatch, groups, files, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    assert usable_cores(machine(tmp_path, groups, files)) == cores
