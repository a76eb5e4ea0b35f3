"""`tts runs watch`: the report of a run that goes on, for browsers on this machine.

| path | what |
|---|---|
| `/`, `/watch.js`, `/watch.css` | the frame: how far the run is, and in it the newest page |
| `/state` | the newest page's number and how far the run is, as JSON |
| `/3/report.html`, `/3/report-files/001.js` | the third page |

It listens on the loopback interface only, and answers only requests for it by name: a web site that
had its own name resolved to this machine would be refused.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tts.build import paths
from tts.build.errors import RunError
from tts.runs.going_on import newest_unfinished

from .figures.run import run_figures
from .live_run import LiveRun, State
from .live_screen import run_line
from .page import FILE, write_page
from .page.of_runs import facts_of

EVERY_S = 5.0
"""Seconds between two pages, at least."""
_REST = 4.0
"""And so many times what the last one took: writing pages costs a fifth of a core at most."""
_KEPT = 2
"""Pages that are kept: a viewer of the previous one may still open its trees."""


class LivePage:
    """Pages of a run, numbered from 1, each with its files in a folder of its own."""

    def __init__(
        self, folder: Path, pages: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Look at the run in `folder`; `pages` is an empty folder. Raises RunError."""
        self._run = LiveRun(folder)
        self._pages = pages
        self._clock = clock
        self._next = clock()
        self._behind = True
        self.number = 0
        """The newest page's number; 0 before the first."""
        self.line = ""
        """How far the run is."""
        self.problem: str | None = None
        """The reason that a newer page could not be written."""

    @property
    def state(self) -> State:
        """The state of the run."""
        return self._run.state

    def look(self) -> None:
        """Read on in the log, and write a page if it is behind and it is time for one."""
        before = self.state
        self._behind |= self._run.read() or self.state is not before
        self.line = run_line(self._run)
        if self.state is State.READING or not (self._behind and self._clock() >= self._next):
            return
        began = self._clock()
        try:
            if self._run.numbers:
                self._write(self._run.run)
            self.problem = None
        except RunError as error:
            self.problem = error.message
        ended = self._clock()
        self._next = ended + max(EVERY_S, _REST * (ended - began))

    def file(self, number: int, name: str) -> Path:
        """A file of a page; it may be gone by now."""
        return self._pages / str(number) / name

    def _write(self, run: Path) -> None:
        folder = self._pages / str(self.number + 1)
        folder.mkdir(exist_ok=True)
        title = f"{run.resolve().name}: {self.state.value}"
        write_page(folder / FILE, title, facts_of([run]), run_figures(run), [run], lead=self.line)
        self._behind = False
        self.number += 1
        shutil.rmtree(self._pages / str(self.number - _KEPT), ignore_errors=True)


TICK_S = 1.0
"""How often the log is looked at."""
_STATIC = Path(__file__).parent / "live_static"
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_OF_PAGE = re.compile(rf"/(\d{{1,9}})/({re.escape(FILE)}|{Path(FILE).stem}-files/\d{{3,9}}\.js)")
_FRAME = {"/": "watch.html", "/watch.js": "watch.js", "/watch.css": "watch.css"}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FRAME_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'"
)


def serve_run(folder: Path | None, say: Callable[[str], None]) -> None:
    """Serve the report of a run until Ctrl-C; None: the newest unfinished one. Raises RunError."""
    folder = folder or newest_unfinished(paths.runs_dir())
    with tempfile.TemporaryDirectory(prefix="tts-watch-") as pages:
        page = LivePage(folder, Path(pages))
        with serving(page) as address:
            say(f"{folder}: {address} (Ctrl-C ends it, not the run)")
            said = page.state
            try:
                while True:
                    page.look()
                    if page.state is not said and page.state is not State.READING:
                        said = page.state
                        say(page.line)
                    time.sleep(TICK_S)
            except KeyboardInterrupt:
                return  # whoever watches has seen enough


@contextmanager
def serving(page: LivePage) -> Iterator[str]:
    """A server of a page on a free port of the loopback interface; its address."""
    handler = functools.partial(_Handler, page)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="tts runs watch", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one browser."""

    timeout = 30.0

    def __init__(self, page: LivePage, *arguments: object) -> None:
        self._page = page
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """See the module."""
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self._answer(HTTPStatus.FORBIDDEN, b"This server answers its own machine only.\n")
            return
        path = self.path.partition("?")[0]
        if path == "/state":
            page = self._page
            state = {"page": page.number, "line": page.line, "problem": page.problem}
            self._answer(HTTPStatus.OK, json.dumps(state).encode(), "application/json")
        elif name := _FRAME.get(path):
            self._send_file(_STATIC / name, {"Content-Security-Policy": _FRAME_POLICY})
        elif match := _OF_PAGE.fullmatch(path):
            self._send_file(self._page.file(int(match[1]), match[2]), {})
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n")

    def _send_file(self, file: Path, headers: dict[str, str]) -> None:
        try:
            content = file.read_bytes()
        except OSError:  # an old page, which is gone
            self._answer(HTTPStatus.NOT_FOUND, b"This page is gone; there is a newer one.\n")
            return
        self._answer(HTTPStatus.OK, content, _TYPES[file.suffix], headers)

    def _answer(
        self,
        status: HTTPStatus,
        content: bytes,
        kind: str = "text/plain",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests: the terminal is the run's."""
