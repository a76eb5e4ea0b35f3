"""Reports of searches, on disk: written when a request asks for one, the oldest removed.

Whoever knows a report's name may read it, without a key: 128 random bits, told to nobody but the
client of the search. That is what makes it a thing to share.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from contextlib import suppress
from pathlib import Path

from tts.build import paths
from tts.build.errors import TtsError
from tts.build.private import private_folder
from tts.reports.page.packing import pack, unpack
from tts.reports.page.page import page_of_trees
from tts.reports.page.trees import ProblemTree, ThoughtRecord
from tts.runs.durable import write_whole
from tts.runs.events import LoggedAnswer, LoggedCompletion, LoggedThought
from tts.search import Fate, NodePath
from tts.session import Result

from ..exchange import Exchange
from ..openai.errors import ApiError
from ..running_searches import RunningSearch
from ..service import Service
from .files import SECURITY

logger = logging.getLogger(__name__)

FOLDER = "/reports/"
KEPT = 500
"""Reports; a page of the demo pair's takes a tenth of a megabyte."""

_NAME = re.compile(rf"{FOLDER}([0-9a-f]{{32}}\.(html|json))")
_TITLE_CHARS = 120
_TYPES = {"html": b"text/html; charset=utf-8", "json": b"application/json"}
_POLICY = b"sandbox allow-scripts allow-downloads"
"""Sent with a report, which has a policy of its own and may not speak for this origin."""


def reports_dir() -> Path:
    """Where the reports lie."""
    return paths.gateway_dir() / "reports"


async def keep(
    search: RunningSearch[Result], result: Result, facts: dict[str, object]
) -> str | None:
    """Write the report of a search that has ended; the path at which it is served.

    None where it cannot be written: the answer is worth more than its report.
    """
    try:
        return await asyncio.to_thread(_write, search, result, facts)
    except (OSError, TtsError) as error:
        logger.warning("the report of a search was not kept: %s", error)
        return None


async def kept_report(service: Service, exchange: Exchange) -> None:
    """`/reports/ID.html`, a page of its own to look at or to save; `.json`, its tree alone."""
    match = _NAME.fullmatch(exchange.path)
    try:
        content = (reports_dir() / match[1]).read_bytes() if match else None
    except OSError:
        content = None
    if match is None or content is None:
        raise ApiError(404, "There is no such report, or it has been removed.")
    exchange.extra_headers += [*SECURITY, (b"content-security-policy", _POLICY)]
    await exchange.respond(content, content_type=_TYPES[match[2]])


def _write(search: RunningSearch[Result], result: Result, facts: dict[str, object]) -> str:
    packed = pack(tree_of(search, result))
    question = " ".join(result.problem.question.split())
    title = question if len(question) <= _TITLE_CHARS else f"{question[: _TITLE_CHARS - 3]}..."
    told = {name: value if isinstance(value, int) else str(value) for name, value in facts.items()}
    page = page_of_trees(title, {"Search": told}, {"search": [packed]})
    tree = {"entry": packed.entry, "tree": unpack(packed.packed)}
    folder = reports_dir()
    private_folder(folder.parent)
    private_folder(folder)
    name = secrets.token_hex(16)
    files = {
        folder / f"{name}.json": json.dumps(tree, separators=(",", ":")),
        folder / f"{name}.html": page.encode(errors="replace").decode(),
    }
    try:
        for file, text in files.items():
            write_whole(file, text)
    except OSError:
        for file in files:
            file.unlink(missing_ok=True)
        raise
    with suppress(FileNotFoundError):  # another request has just removed one
        _remove_oldest(folder)
    return f"{FOLDER}{name}.html"


def _remove_oldest(folder: Path) -> None:
    pages = sorted(folder.glob("*.html"), key=lambda file: file.stat().st_mtime)
    for page in pages[:-KEPT]:
        for file in (page, page.with_suffix(".json")):
            file.unlink(missing_ok=True)


def tree_of(search: RunningSearch[Result], result: Result) -> ProblemTree:
    """The tree of a search that has ended with `result`, as the report's viewer draws it.

    Times are the clock's of the search.
    """
    answers = list(dict.fromkeys(done.answer for done in result.completions if done.answer))
    tree = ProblemTree(
        result.problem.id,
        question=result.problem.full_question,
        level=result.problem.level,
        reference=result.problem.answer,
        answer=result.answer,
        correct=result.correct,
        began=search.began,
        ended=search.ended,
        limit=result.limit,
        digest=result.tree_digest,
        tokens=result.usage.generated_tokens,
        completions=tuple(
            LoggedCompletion(
                done.node, done.score, answers.index(done.answer) if done.answer else -1
            )
            for done in result.completions
        ),
        groups=tuple(LoggedAnswer(answer, None) for answer in answers),
    )
    tree.thoughts = _thoughts(search, result)
    return tree


def _thoughts(search: RunningSearch[Result], result: Result) -> list[ThoughtRecord]:
    written: dict[NodePath, float] = {}
    scored: dict[NodePath, float] = {}
    expanded: dict[NodePath, float] = {}
    for at, step in search.timed_steps:
        times = written if step.score is None else scored
        times.setdefault(step.node, at)
        expanded.setdefault(step.node[:-1], at)
    thoughts = []
    for node in result.tree or ():
        if node.thought is None:
            continue
        done = written.get(node.path, search.began)
        thoughts.append(
            ThoughtRecord(
                node.path,
                node.path,
                LoggedThought(node.thought.token_ids, node.thought.text, node.thought.stop),
                sent=None,
                done=done,
                speculative=False,
                used=done,
                score=node.score,
                scored=None if node.score is None else scored.get(node.path, done),
                fate=node.fate,
                decided=expanded.get(node.path) if node.fate is Fate.EXPANDED else search.ended,
            )
        )
    return sorted(thoughts, key=lambda thought: (thought.done, thought.path))
