"""Everything that the product derives from a run folder, as plain data: the one adapter.

The golden tests know nothing of the product but this module. A change of the product's insides is
followed here, and here alone; what these functions return must stay what it was. Commands are run
as users run them, since what they print is part of what is pinned.
"""

import asyncio
import base64
import hashlib
import html
import json
import re
import sys
from collections import Counter, defaultdict
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import msgspec
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.golden.recording_server import RecordingServer, without_id
from typer.testing import CliRunner

from tts.base.errors import TtsError
from tts.build.spec import load_deployment
from tts.cli import app
from tts.constraints.step_grammar import answer_constraint
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.triton import TritonConnection
from tts.engines.wire import EBNF, Guide
from tts.fleet import connecting
from tts.fleet.endpoints import endpoints_on
from tts.fleet.replicas import EnginePair, Replicas
from tts.gateway.observability.record import ServedRequest
from tts.gateway.openai.requests import Request
from tts.gateway.output.generation import Sampling, TextGenerator
from tts.gateway.safety.filters import FilterChain
from tts.lab import campaign
from tts.lab.bench.single_run import resume_bench
from tts.lab.observer import Observer
from tts.lab.study.folder import limits_digest
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.config import parse_config
from tts.runs.log import read_events
from tts.runs.run import Run
from tts.runs.summary import summarise
from tts.search import Stop, Thought
from tts.serving.repository.digest import deployment_digest
from tts.session import AsyncSession, Session

_TERMINAL = {"COLUMNS": "100", "LINES": "50", "TERM": "dumb", "TTY_COMPATIBLE": "1"}
_ENGINES = ("generator", "verifier")
_WORDS = ("1", "22", " + ", r"\boxed{4}")
"""What scripted engines write."""
_MOST_ROWS = 24
"""Of a figure that are kept as they are."""


def _kept(kept, summary):
    """What a run's own summary says otherwise than one made now."""
    if kept is None:
        return None
    other = {name: value for name, value in kept.to_json().items() if summary.get(name) != value}
    return other or "the same"


def of_run(folder):
    """What programs get of a run by `tts.Run`, and the summary that would be made of it now."""
    run = Run.load(folder)
    asked = parse_config(json.loads((folder / "run.json").read_text()), folder / "run.json")
    summary = _or_error(lambda: summarise(asked, Run(folder, asked, None).totals).to_json())
    return {
        "summary": summary,
        "kept_summary": _kept(run.summary, summary),
        "measures": _or_error(lambda: run.measures),
        "problems": _or_error(lambda: [_problem(problem) for problem in run.problems]),
        "requests": _or_error(lambda: _requests(run.requests)),
        "frames": _or_error(lambda: [_frame(frame) for frame in _frames(run)]),
    }


def of_report(*folders):
    """What `tts report` prints, and what its page shows."""
    printed = command("report", *folders)
    beside = [Path(folders[0]).parent] if len(folders) > 1 else []
    pages = [file for folder in [*folders, *beside] for file in Path(folder).glob("report*.html")]
    return {"printed": printed, "pages": {page.name: _page(page) for page in pages}}


def of_rows(folder):
    """The table of a comparison, a row for each strategy, and what is unfinished."""
    compared = _document("report", folder)
    rows = [{**row, "answers": len(row["answers"]), "summary": None} for row in compared["rows"]]
    return {"rows": rows, "unfinished": list(compared["unfinished"].values())}


def of_comparison(*folders):
    """What `tts report` prints of several folders, what its page shows, and what is behind it."""
    compared = _document("report", *folders)
    if "error" not in compared:
        settings = {each["name"]: each["values"] for each in compared["settings"]}
        compared = {"settings": settings, "pairs": compared["pairs"]}
    return {**of_report(*folders), "compared": compared}


def of_trace(folder, file):
    """What is on each track of a run's timeline, and a hash of it all."""
    printed = command("runs", "trace", folder, "--to", file)
    if not file.exists():
        return printed
    names = {}
    events = defaultdict(Counter)
    for event in json.loads(file.read_text())["traceEvents"]:
        process, thread = event["pid"], (event["pid"], event.get("tid"))
        if event["name"] == "process_name":
            names[process] = event["args"]["name"]
        elif event["name"] == "thread_name":
            names[thread] = f"{names[process]}/{event['args']['name']}"
        else:
            track = names.get(thread) or f"{names[process]}/{event['name']}"
            events[re.sub(r"\d+$", "N", track)][event["ph"]] += 1
    return {
        "printed": printed,
        "names": len(names),
        "tracks": {name: dict(sorted(counts.items())) for name, counts in sorted(events.items())},
        "hash": _hash(file.read_bytes()),
    }


def of_merge(shards, out):
    """What merging shards prints, and the run that it makes."""
    return {
        "printed": command("runs", "merge", *shards, "--out", out),
        "log": _hash(_unsealed(out / "events.jsonl")),
        "config": _unsealed_json(out / "run.json"),
        "summary": _unsealed_json(out / "summary.json"),
    }


def of_study(folder):
    """The numbers of a study's figures, its advice, and what its report shows."""
    file = folder / "study.json"
    study = json.loads(file.read_text())
    spec = load_deployment(study["deployment"])  # whose checkpoints lie elsewhere in each checkout
    file.write_text(json.dumps({**study, "limits_digest": limits_digest(spec)}))
    report = of_report(folder)
    return {"measurements": _unsealed_json(folder / "measurements.json"), "report": report}


def of_resumption(folder, *, repair=False):
    """What is asked of the engines when a run is continued, and what comes of it.

    The engines are scripted; they answer by the token ids and the seed of a request alone.
    """
    return _continued(folder, *_scripted(), repair=repair)


def _continued(folder, generator, verifier, *, repair=False):
    config = json.loads((folder / "run.json").read_text())
    # a later tts may serve the same models otherwise, and continues no run of an earlier one
    config["deployment_digest"] = deployment_digest(load_deployment("demo"))
    (folder / "run.json").write_text(json.dumps(config))
    session = partial(_ClosingSession, generator=generator, verifier=verifier)
    with (
        mock.patch.object(campaign, "AsyncSession", session),
        mock.patch.object(connecting, "require_current"),
        mock.patch.object(connecting, "build_if_quick"),
    ):
        error = _or_error(lambda: resume_bench(folder, None, Observer(), repair=repair) and None)
    if error:
        return error
    summary = json.loads((folder / "summary.json").read_text())
    timeless = ("problems", "accuracy_by_rule", "pass_at_n", "undecided", "tree_digest", "sessions")
    return {
        # what is speculated depends on times: only what the trees hold is pinned
        "summary": {name: summary[name] for name in timeless},
        "digests": dict(
            sorted((problem.id, problem.tree_digest) for problem in Run.load(folder).problems)
        ),
        "asked_again": sorted(_asked_again(folder)),
    }


def of_refusals(folder):
    """What a program is told that continues a run with something else than before."""
    problems = [("Compute 1 + 2.", "3"), ("Compute 3 + 4.", "7")]
    before = {"n": 4, "seed": 3, "strategy": "beam-search", "schedule": "decoupled"}
    changes = {
        "n": {"n": 8},
        "seed": {"seed": 4},
        "strategy": {"strategy": "dvts"},
        "schedule": {"schedule": "lockstep"},
        "speculation": {"speculation": "off"},
        "in flight": {"in_flight": 1},
        "parameter": {"temperature": 0.5},
        "budget": {"budget_tokens": 100},
        "deadline": {"deadline_s": 60.0},
        "function": {"answer_of": _answer_of},
        "nothing": {},
    }
    generator, verifier = _scripted()
    with Session.open("demo", generator=generator, verifier=verifier) as session:

        def solve(given, **options):
            results = session.solve_many(given, out=folder, **{**before, **options})
            return sorted((r.problem.id, r.answer, r.tree_digest) for r in results)

        first = solve(problems)
        refused = {
            name: _or_error(lambda change=change: solve(problems, resume=True, **change))
            for name, change in changes.items()
        }
        fewer = _or_error(lambda: solve(problems[:1], resume=True))
        again = _or_error(lambda: solve(problems))
    return {"first": first, "changed": refused, "fewer problems": fewer, "no resume": again}


def of_wire(socket):
    """The bytes of single requests, as the server gets them."""
    models = _models()
    problem = Problem("p", "Compute 3 + 4 * 5.", "23")
    context = Context.of(models, problem)
    encode = models.generator.encode
    step = Thought(
        tuple(encode("## Step 1: 4 * 5 = 20\n\n")), "## Step 1: 4 * 5 = 20\n\n", Stop.STEP
    )
    cut = Thought(tuple(encode("## Step 2: 3 +")), "## Step 2: 3 +", Stop.LENGTH)
    context.add((0,), step)
    context.add((0, 0), cut)
    first, second, third = (context.generator_ids(node) for node in ((), (0,), (0, 0)))
    constraint = answer_constraint(r"-?\d{1,3}", None, "\n\n")
    assert constraint is not None
    guide = constraint.guide("")
    stop = tuple(models.step_stop_words)
    calls = {
        "a first step": GenerateCall(first, 300, 12345678901234567890, 0.8, 1.0, True),
        "a later step": GenerateCall(second, 280, 1, 0.8, 0.95, True),
        "after text that was cut off": GenerateCall(third, 64, 2**63, 1.0, 1.0, True),
        "a whole chain": GenerateCall(first, 300, 7, 0.7, 1.0, False),
        "a greedy step": GenerateCall(first, 300, 0, 0.0, 1.0, True),
        "a greedy chain": GenerateCall(first, 300, 0, 0.0, 1.0, False),
        "a constrained step": GenerateCall(second, 100, 3, 0.8, 1.0, True, guide),
        "a constrained greedy chain": GenerateCall(
            first, 100, 3, 0.0, 1.0, False, Guide(EBNF, 'root ::= "4"')
        ),
        "a prompt sent ahead": GenerateCall(first, 1, 0, 0.0, 1.0, True),
    }
    scores = {"a first step": (0,), "a step that was cut off": (0, 0)}
    streamed = {
        "greedy": GenerateCall(first, 20, 0, 0.0, 1.0, False),
        "sampled": GenerateCall(first, 20, 5, 0.7, 0.9, False),
        "of the first k": GenerateCall(first, 20, 5, 0.7, 1.0, False, top_k=40),
        "stop words": GenerateCall(first, 20, 0, 1.0, 1.0, False, stop_words=stop),
        "log-probabilities": GenerateCall(second, 20, 0, 0.0, 1.0, False, log_probs=True),
        "whole": GenerateCall(second, 20, 0, 0.0, 1.0, False, streaming=False),
    }

    async def send(server):
        sent = {}
        async with TritonConnection(server.address) as connection:
            generator, verifier = endpoints_on(models, connection)
            for name, call in calls.items():
                await generator.generate(call)
                sent[f"generate: {name}"] = server.taken()
            for name, node in scores.items():
                await verifier.score(ScoreCall(context.verifier_ids(node)))
                sent[f"score: {name}"] = server.taken()
            for name, call in streamed.items():
                async for _ in generator.stream(call):
                    pass
                sent[f"stream: {name}"] = server.taken()
        return sent

    return _bytes_sent(send, socket)


def of_gateway(socket):
    """The bytes of requests that are part of no search, as the gateway sends them."""
    models = _models()
    prompt = models.generator.encode("Compute 3 + 4 * 5.")
    fields = {"model": models.deployment.name, "seed": 5, "max_tokens": 20}
    stopping = {"stop": "\n\n", "stop_token_ids": [7, 9]}
    asked = {
        "defaults": {},
        "streamed": {"stream": True},
        "greedy": {"temperature": 0.0},
        "sampled": {"temperature": 0.7, "top_p": 0.9, "stream": True},
        "of the first k": {"temperature": 0.7, "top_k": 40},
        "three choices": {"n": 3},
        "stops": {**stopping, "stream": True},
        "stops, whole": {"stop": ["3", "nothing"]},
        "goes on at the end": {"ignore_eos": True},
        "goes on, and stops": {**stopping, "ignore_eos": True, "temperature": 0.0},
        "log-probabilities": {"stream": True},
        "log-probabilities, whole": {},
    }

    async def send(server):
        sent = {}
        connection = TritonConnection(server.address)
        pair = EnginePair("", *endpoints_on(models, connection), connection)
        async with connection, Replicas(None) as replicas:
            replicas.use(pair)
            generator = TextGenerator(models, replicas, FilterChain())
            for name, more in asked.items():
                request = Request(**fields, **more)
                logs = 0 if name.startswith("log") else None
                calls = generator.calls(request, Sampling([prompt], logs=logs), [request.limit])
                for index, call in enumerate(calls):
                    record = ServedRequest(id="", endpoint="", time=0.0, t0=0.0)
                    choice = generator.sample(index, call, request)
                    async for _ in generator.deltas(call, choice, record, ""):
                        pass
                sent[name] = server.taken()
        return sent

    return _bytes_sent(send, socket)


def _bytes_sent(send, socket):
    """The requests that `send` has a server get, by what it calls them."""
    with _recording_server(socket) as server:
        sent = asyncio.run(send(server))
    return {
        name: [base64.b64encode(without_id(each)).decode() for each in requests]
        for name, requests in sent.items()
    }


class _Behind:
    """Both engines of a server, connected by the loop that first asks them."""

    def __init__(self, address):
        self._address = address
        self._connection = None

    async def generate(self, call):
        return await self._endpoints()[0].generate(call)

    async def score(self, call):
        return await self._endpoints()[1].score(call)

    def _endpoints(self):
        if self._connection is None:
            self._connection = TritonConnection(self._address)
            self._pair = endpoints_on(_models(), self._connection)
        return self._pair

    async def aclose(self):
        if self._connection:
            await self._connection.__aexit__(None, None, None)


class _ClosingSession(AsyncSession):
    """A session on engines of the program's own, which are closed with it."""

    async def __aexit__(self, *failure):
        await super().__aexit__(*failure)
        generator, _ = self._own
        if isinstance(generator, _Behind):
            await generator.aclose()


def of_requests(folder, socket):
    """What the generator is sent to continue a run, whose schedule is lockstep.

    The order of requests is free, and so is whether a score that no longer matters is asked for.
    """
    with _recording_server(socket) as server:
        engines = _Behind(server.address)
        done = _continued(folder, engines, engines)
        sent = sorted(map(without_id, server.requests_to("generator")))
    return {
        "done": done,
        "requests": len(sent),
        "bytes": sum(map(len, sent)),
        "hash": _hash(b"\0".join(sent)),
    }


def _recording_server(socket):
    encode = _models().generator.encode
    return RecordingServer(socket, [encode(word) for word in _WORDS], encode("\n\n"))


def _answer_of(completion):
    return completion


def _or_error(derive):
    """What `derive` returns, or what the user is told instead."""
    try:
        return derive()
    except TtsError as error:
        return {"error": error.message, "hint": error.hint}


def command(*arguments):
    """What a command prints on a terminal of 100 columns; in case of an error what it says."""
    done = _invoked(arguments)
    return done if isinstance(done, dict) else [each.rstrip() for each in done.output.splitlines()]


def _document(*arguments):
    """What a command prints for programs; in case of an error what it says."""
    done = _invoked([*arguments, "--json"])
    return done if isinstance(done, dict) else json.loads(done.stdout)


def _invoked(arguments):
    done = CliRunner(env=_TERMINAL).invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, TtsError):
        return {"error": done.exception.message, "hint": done.exception.hint}
    assert done.exit_code == 0, (done.exception, done.output[-300:])
    return done


def _problem(problem):
    completions = [
        {
            "node": _name(done.node),
            "score": done.score,
            "step_scores": done.step_scores,
            "answer": done.answer,
            "text": _hash(done.text.encode()),
            "steps": _hash("\0".join(done.steps).encode()),
        }
        for done in problem.completions
    ]
    fields = msgspec.to_builtins(problem)
    return {**fields, "completions": completions}


def _requests(requests):
    counts = Counter(
        f"{each.engine} {each.kind} {each.cancelled or ''}".strip() for each in requests
    )
    rows = [msgspec.json.encode(each) for each in requests]
    return {"counts": dict(sorted(counts.items())), "hash": _hash(b"\n".join(rows))}


def _frames(run):
    """Data frames, with columns as they are given to the library."""
    library = SimpleNamespace(DataFrame=dict)
    with mock.patch.dict(sys.modules, {"polars": library}):
        return run.to_frames("polars")


def _frame(columns):
    return {name: _hash(json.dumps(values).encode()) for name, values in columns.items()}


@cache
def _models():
    return Models.load(load_deployment("demo"))


def _page(file):
    """The figures, facts and trees of a page, without how they are drawn and what wrote it."""
    text = file.read_text()
    figures = [
        {
            "name": figure["name"],
            "title": figure["title"],
            "reading": _text(section, "p")[0],
            "notes": _text(section, "li"),
            "columns": figure["columns"],
            "rows": _rows(figure["rows"]),
            "drawn": figure["chart"] is not None,
        }
        for figure, section in zip(
            _json_in(text, "figure-data"),
            re.findall(r'<section class="figure".*?</section>', text, re.DOTALL),
            strict=True,
        )
    ]
    facts = {
        heading: [
            _text(row, "th")[0] + ": " + _text(row, "td")[0] for row in rows.split("<tr>")[1:]
        ]
        for heading, rows in re.findall(
            r'<section class="facts".*?<h2>(.*?)</h2>(.*?)</section>', text, re.DOTALL
        )
        if heading != "This page"
    }
    packed = _json_in(text, "packed-trees")
    trees = {
        run["name"]: [
            {**entry, "tree": _hash(packed[number][place].encode())}
            for place, entry in enumerate(run["problems"])
        ]
        for number, run in enumerate(_json_in(text, "tree-data")["runs"])
    }
    lead = _text(text.partition("</header>")[0], "p")
    advice = re.findall(r'<section class="advice".*?</section>', text, re.DOTALL)
    said = {"advice": _text(advice[0], "dd")} if advice else {}
    return {"lead": lead, **said, "figures": figures, "facts": facts, "trees": trees}


def _rows(rows):
    """The rows of a figure; of a long one their number and a hash."""
    if len(rows) <= _MOST_ROWS:
        return rows
    rounded = [[f"{c:.9g}" if isinstance(c, float) else c for c in row] for row in rows]
    return {"rows": len(rows), "first": rows[0], "hash": _hash(json.dumps(rounded).encode())}


def _json_in(page, name):
    element = rf'<script type="application/json" id="{name}">(.*?)</script>'
    return json.loads(re.search(element, page, re.DOTALL)[1])


def _text(page, tag):
    return [html.unescape(each) for each in re.findall(rf"<{tag}\b[^>]*>([^<]*)</{tag}>", page)]


def _asked_again(folder):
    """Requests for what the log held already; there are none of a run that is continued well."""
    known, again = set(), []
    for event in read_events(folder):
        name = type(event).__name__
        if name in ("StepGenerated", "StepScored") and not getattr(event, "cached", False):
            key = f"{name} {event.problem} {_name(event.node)}"
            if key in known:
                again.append(key)
            known.add(key)
    return again


def _scripted():
    encode = _models().generator.encode
    return ScriptedGenerator([encode(word) for word in _WORDS], encode("\n\n")), ScriptedVerifier()


def _name(node):
    return ".".join(map(str, node))


def _unsealed(log):
    """What a log says, without its checksums."""
    lines = re.sub(rb',"crc":"[0-9a-f]{8}"', b"", log.read_bytes())
    return re.sub(rb',"files":\{[^}]*\}', b"", lines)


def _unsealed_json(file):
    """A file's fields without those that say what it belongs to."""
    fields = json.loads(file.read_text())
    return {name: value for name, value in fields.items() if name != "crc"}


def _hash(data):
    return hashlib.sha256(data).hexdigest()[:16]
