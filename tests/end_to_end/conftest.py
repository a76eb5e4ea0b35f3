"""The command line with engines of its own, and with a server that runs already.

A test that only asks takes `served`. One that starts, stops, kills or configures servers takes
`tts`.
"""

import fcntl
import shutil

import pytest
from tests.end_to_end.commands import Tts, quiet

from tts.build.spec import load_deployment
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton


@pytest.fixture(scope="session")
def new_home(tmp_path_factory, worker_id):
    """Makes homes with the engines of a bundled deployment, where nothing runs yet.

    They are built once for all workers.
    """
    own = tmp_path_factory.getbasetemp()

    def make(name="demo"):
        built = (own if worker_id == "master" else own.parent) / "engines" / name
        built.mkdir(parents=True, exist_ok=True)
        with (built / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (built / "complete").exists():
                code, _, err = Tts(built).run("build-engines", name, "--no-verify")
                assert code == 0, err
                (built / "complete").touch()
        home = tmp_path_factory.mktemp("home")
        shutil.copytree(built / "built", home / "built")
        return home

    return make


@pytest.fixture
def tts(new_home, monkeypatch):
    """A home with engines, this process's, and nothing that runs: not at its end, either."""
    with quiet(new_home()) as tts:
        monkeypatch.setenv("TTS_HOME", str(tts.home))
        yield tts


@pytest.fixture(scope="session")
def server(new_home):
    """The server of the demo pair that each worker starts once, and the home that it is in."""
    home = new_home()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(home))
        server = start_server(Triton(load_deployment("demo")))
    with server:
        yield server, home
        server.check()


@pytest.fixture(scope="session")
def new_served_home(server, tmp_path_factory):
    """Makes homes in which that server is found: each with keys and logs of its own."""

    def make():
        home = tmp_path_factory.mktemp("served")
        (home / "built").symlink_to(server[1] / "built")
        return home

    return make


@pytest.fixture(scope="session")
def served(new_served_home):
    """A home whose server runs, for all who only ask it."""
    return Tts(new_served_home())


@pytest.fixture
def in_served(served, monkeypatch):
    """The same, as this process's home."""
    monkeypatch.setenv("TTS_HOME", str(served.home))
    return served
