"""Programs in the sandbox: what they may use, how they end, and that nothing of them is left."""

import asyncio
import dataclasses
import os
import platform
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tests.build.sandboxes import BUBBLEWRAP, KINDS, OPEN, left, python, sandbox

from tts.base.errors import ConfigError
from tts.build.sandbox import NO_LIMIT, Failure, find_bubblewrap
from tts.build.sandbox import sandbox as module
from tts.build.sandbox.bubblewrap import _ARCHITECTURES, CLONE, REFUSED

COLUMN = int(platform.machine() == "aarch64")

FORKS = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        time.sleep(1000)
time.sleep(1000)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
"""
TWO_HALVES = """
import os, time
os.fork()
half = bytearray(90 << 20)
time.sleep(1000)
"""
BOMB = """
import contextlib, os, time
for _ in range(7):  # 128 processes at most
    with contextlib.suppress(OSError):
        os.fork()
time.sleep(1000)
"""
IGNORES = """
import signal
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
while True: pass
"""
MANY_FILES = """
for number in range(100_000):
    open(str(number), 'w').close()
import time; time.sleep(1000)
"""
FULL_FOLDERS = """
import time
for folder in ('/tmp', '/dev/shm'):
    for each in 'ab': open(f'{folder}/{each}', 'wb').write(bytes(20 << 20))
time.sleep(1000)
"""
HANGS = "import time; time.sleep(1000)"


def run(box, command, given=b""):
    return asyncio.run(box.run(command, given))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "limits", "failure"),
    [
        (HANGS, {"wall_s": 0.5}, Failure.TIME),
        ("bytearray(1 << 40)", {}, Failure.STATUS),
        (TWO_HALVES, {"memory_mb": 160}, Failure.MEMORY),
        (FORKS, {"processes": 4}, Failure.PROCESSES),
        (BOMB, {"processes": 16}, Failure.PROCESSES),
        ("open('big', 'wb').write(bytes(2 << 20))", {"files_mb": 1}, Failure.STATUS),
        ("print('x' * 100_000)", {}, Failure.OUTPUT),
        ("import os; os.kill(os.getpid(), 9)", {}, Failure.STATUS),
        (DAEMON, {}, None),
    ],
    ids=lambda value: value.name if isinstance(value, Failure) else None,
)
def test_a_program_ends_as_stated_and_whole(kind, code, limits, failure):
    mark = uuid.uuid4().hex
    ended = run(sandbox(kind, **limits), python(code, mark))
    assert ended.failure is failure
    assert not left(mark)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(OPEN, "while True: pass"), pytest.param(*BUBBLEWRAP.values, IGNORES, marks=BUBBLEWRAP.marks)],
)
def test_processor_time_has_a_limit_also_for_what_ignores_its_signal(kind, code):
    """The limits of both kinds are set by the same code, and each takes its seconds."""
    assert run(sandbox(kind, cpu_s=1), python(code)).failure is Failure.CPU


@pytest.mark.parametrize("kind", KINDS)
def test_it_gets_its_input_and_tells_its_output_errors_and_status(kind):
    code = "import sys; print(sys.stdin.read()[::-1]); sys.exit('why')"
    ended = run(sandbox(kind), python(code), b"abc")
    assert (ended.output, ended.errors, ended.status) == (b"cba\n", "why\n", 1)
    assert run(sandbox(kind), python("print(1)"), b"x" * 1_000_000).failure is None  # never read
    assert run(sandbox(kind), ["/nowhere/program"]).failure is Failure.NOT_STARTED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", [0, 1, 10])  # before it starts, as it does, when all run
def test_cancelling_ends_it_and_all_that_it_started(kind, wanted):
    mark = uuid.uuid4().hex

    async def cancelled():
        task = asyncio.create_task(sandbox(kind).run(python(FORKS, mark), b""))
        await asyncio.sleep(0)
        while len(left(mark)) < wanted:
            assert not task.done()
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not left(mark)


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_outlive_the_process_that_runs_it(kind):
    mark = uuid.uuid4().hex
    code = (
        "import asyncio; from tests.build.sandboxes import *; "
        f"asyncio.run(sandbox({kind!r}).run(python({HANGS!r}, {mark!r}), b''))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    while not left(mark):
        assert parent.poll() is None
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    while left(mark):  # a test that hangs here has failed
        time.sleep(0.02)


REACHES = [
    "import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)",
    "open({secret!r}).read()",
    "open({given!r}, 'w')",
    "open('/usr/file', 'w')",
    "open('/file', 'w')",
    "open('/dev/file', 'w')",
    "open('/proc/sys/fs/file-max', 'r+')",
    "import os; os.environ['SECRET']",
    "import os; os.kill({process}, 0)",
    "import ctypes, os; assert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    "for name in 'ab': assert open(f'/dev/shm/{{name}}', 'wb', 0).write(bytes(1 << 20))",
]


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_of_this_machine_it_sees_what_it_is_given(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    secret, given = tmp_path / "secret", tmp_path / "given"
    secret.write_text("secret")
    given.write_text("given")

    async def attempt():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            facts = {"port": port, "secret": str(secret), "given": str(given), "process": 999_999}
            attempts = [code.format(**facts) for code in REACHES]
            attempts.append(f"open('file', 'w').write(open({str(given)!r}).read())")
            code = f"""
for number, attempt in enumerate({attempts!r}):
    try: exec(attempt)
    except Exception: pass
    else: print(number)
"""
            return await sandbox(kind, [given], files_mb=1).run(python(code), b"")

    assert asyncio.run(attempt()).output.split() == [str(len(REACHES)).encode()]


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
@pytest.mark.parametrize(
    ("code", "limits"),
    [
        (MANY_FILES, {"memory_mb": 64, "files_mb": 1000}),
        (FULL_FOLDERS, {"memory_mb": 64, "files_mb": 64}),
    ],
)
def test_its_folders_are_in_memory_that_is_counted(kind, code, limits):
    assert run(sandbox(kind, **limits), python(code)).failure is Failure.MEMORY


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_the_kernel_limits_its_threads_and_descriptors(kind):
    code = """
import os, threading
wait, descriptors, threads = threading.Event(), 0, 0
try:
    while threads < 100: threading.Thread(target=wait.wait, daemon=True).start(); threads += 1
except RuntimeError: pass
try:
    while descriptors < 1000: os.dup(1); descriptors += 1
except OSError: pass
print(threads, descriptors, flush=True)
os._exit(0)
"""
    output = run(sandbox(kind, processes=16, memory_mb=4096), python(code)).output
    threads, descriptors = map(int, output.split())
    assert threads == 2 * 16 - 2  # its parent's and its own are two more
    assert descriptors < 256


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_system_calls_that_lead_out_of_its_limits_are_refused(kind):
    code = f"""
import ctypes, errno, os, threading
libc = ctypes.CDLL(None, use_errno=True)
def is_refused(number, *arguments):
    return libc.syscall(number, *arguments, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.ENOSYS
allowed = [name for name, numbers in {REFUSED!r}.items() if not is_refused(numbers[{COLUMN}])]
if not is_refused({CLONE[COLUMN]}, 0x10000000 | 17): allowed += ["clone"]
print(allowed)
threading.Thread(target=print, args=("a thread",)).start()
if child := os.fork(): os.waitpid(child, 0)  # which would end with this one
else: print("a process", flush=True)
"""
    allowed, *others = run(sandbox(kind), python(code)).output.splitlines()
    assert allowed == b"[]"
    assert {b"a thread", b"a process"} <= set(others)


@pytest.mark.parametrize(
    ("header", "column"), [("x86_64-linux-gnu/asm/unistd_64.h", 0), ("asm-generic/unistd.h", 1)]
)
def test_numbers_of_refused_calls_are_those_of_the_kernels_headers(header, column):
    file = Path("/usr/include", header)
    if not file.exists():
        pytest.skip(f"{file} is not installed (linux-libc-dev)")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", file.read_text()))
    for name, of_machines in (REFUSED | {"clone": CLONE}).items():
        # memfd_secret is of Linux 5.14, later than some distributions' headers
        assert int(numbers.get(name, of_machines[column])) == of_machines[column], name
    machine, architecture = list(_ARCHITECTURES.items())[column]
    machines = Path("/usr/include/linux/elf-em.h").read_text()
    (number,) = re.findall(rf"#define EM_{machine.upper()}\s+(\d+)", machines)
    assert architecture == 0xC0000000 | int(number)  # of 64 bits, little-endian


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_the_keys_of_the_caller_are_not_there(kind):
    code = f"""
import asyncio, ctypes
from tests.build.sandboxes import *
libc = ctypes.CDLL(None)
libc.syscall({REFUSED["keyctl"][COLUMN]}, 1, None)
libc.syscall({REFUSED["add_key"][COLUMN]}, b"user", b"secret-key", b"1234", 4, -3)
listed = open("/proc/keys").read()
inside = asyncio.run(sandbox({kind!r}).run(["/bin/cat", "/proc/keys"], b"")).output
print("secret-key" in listed, b"secret-key" in inside)
"""
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if output.startswith("False"):
        pytest.skip("no keyring here")
    assert output == "True False\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of an ordinary user")
@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_all_of_this_holds_for_an_ordinary_user(kind):
    """Root's own folder is closed to others: bubblewrap shows nobody this Python."""
    binds = [word for path in ("/root", "/home") for word in ("--tmpfs", path)]
    for path in map(Path, (sys.base_prefix, sys.prefix, Path.cwd())):
        for above in list(path.parents)[-2::-1]:
            binds += ["--perms", "0755", "--dir", str(above)]
        binds += ["--ro-bind", str(path), str(path)]
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]
    which = f"{kind} and not processor_time"  # of which root may have no more than others
    tests = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        which,
        __file__,
    ]
    command = ["bwrap", "--dev-bind", "/", "/", *binds, *user, sys.executable, *tests]
    session = subprocess.run(command, capture_output=True, text=True)
    assert session.returncode == 0, session.stdout[-3000:] + session.stderr[-1000:]


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_it_cannot_stop_what_holds_its_limits(kind):
    code = f"import os; os.kill(os.getppid(), 19)\n{FORKS}"
    ended = run(sandbox(kind, processes=4, wall_s=10), python(code))
    assert ended.failure is Failure.PROCESSES


def test_without_bubblewrap_only_who_says_so_runs_anything(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name, **_: None)
    module.find_bubblewrap.cache_clear()
    try:
        with pytest.raises(ConfigError, match="bubblewrap") as refused:
            sandbox("bubblewrap").require()
    finally:
        monkeypatch.undo()
        module.find_bubblewrap.cache_clear()
    assert OPEN in refused.value.hint
    sandbox(OPEN).require()


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_what_it_cannot_see_is_refused_before_it_runs(kind, tmp_path):
    script = tmp_path / "check.py"
    script.write_text("")
    sandbox(kind, [script]).require(["python", str(script)])
    with pytest.raises(ConfigError, match=r"check\.py"):
        sandbox(kind).require(["python", str(script)])
    if find_bubblewrap().changes_user:
        script.chmod(0o600)
        with pytest.raises(ConfigError, match=r"check\.py") as refused:
            sandbox(kind, [script]).require(["python", str(script)])
        assert "Others must be able to read" in refused.value.hint
    with pytest.raises(ConfigError, match="no_such_program"):
        sandbox(kind).require(["no_such_program"])
    with pytest.raises(ConfigError, match=r"not_there\.py"):
        sandbox(kind).require(["python", "not_there.py"])
    with pytest.raises(ConfigError, match="not_there"):
        sandbox(kind, reads=[tmp_path / "not_there"]).require()
    (tmp_path / "link").symlink_to("/proc")
    for covered in ("/", "/proc", "/dev/shm", "/proc/self", "/tmp", "/tmp/work", tmp_path / "link"):
        with pytest.raises(ConfigError, match=f"reads: {covered} "):
            sandbox(kind, reads=[covered]).require()


def test_where_the_kernel_limits_no_processes_the_start_says_so(monkeypatch, caplog):
    unlimited = dataclasses.replace(find_bubblewrap(), limits_processes=False)
    monkeypatch.setattr(module, "find_bubblewrap", lambda: unlimited)
    module._warn_once.cache_clear()
    box = sandbox("bubblewrap")
    if unlimited.path:
        box.require()
        assert NO_LIMIT in caplog.text
    assert NO_LIMIT in str(box)


def test_it_can_be_required_while_an_event_loop_runs():
    async def required():
        sandbox(OPEN).require()

    asyncio.run(required())
