"""Datasets as files of a test, as published, and on a server of our own."""

import json
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def published():
    """Finds a file of the shared test data, which is not part of the repository."""

    def find(name):
        if not (SHARED / name).is_file():
            pytest.skip(f"{SHARED / name} is not here")
        return SHARED / name

    return find


@pytest.fixture
def write(tmp_path):
    """Writes rows, or texts that are none, into a JSONL file: its path."""

    def written(*rows):
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / "set.jsonl").write_text("\n".join(lines))
        return str(tmp_path / "set.jsonl")

    return written


@pytest.fixture
def serving():
    """Serves with a handler of requests; the URL."""

    @contextmanager
    def served(handler):
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()

    return served
