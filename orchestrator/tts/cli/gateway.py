"""`tts gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from tts.fleet.routing.policies import PolicyName
from tts.gateway import process
from tts.gateway.draining import Drain
from tts.gateway.safety.filters import FilterChain
from tts.reports.progress import ProgressLines
from tts.session.event_loop import interruptible
from tts.session.functions import load_all, source_of

from .completion import deployments
from .options import ServerOption, VerifierOption, usable

if TYPE_CHECKING:
    from tts.gateway.http_server import Listen


def gateway(
    deployment: Annotated[
        list[str],
        typer.Argument(
            metavar="DEPLOYMENT...",
            help="Deployment files or bundled names; the model's name chooses among several.",
            autocompletion=deployments,
        ),
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than loopback need keys.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0: one that is free.")
    ] = 8080,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="[HOST:]PORT",
            help="Serve /metrics here too, to everyone, without a key; on loopback unless HOST is "
            "given.",
        ),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            help="gRPC of a server of this deployment, or dns:NAME:PORT for all addresses of a "
            "name, which is followed; several times for several.",
            show_default="those of this machine, or one that is started",
        ),
    ] = None,
    verifier: VerifierOption = None,
    server: ServerOption = None,
    endpoints_file: Annotated[
        Path | None,
        typer.Option(
            "--endpoints-file",
            metavar="FILE",
            callback=usable,
            help="File of servers, one per line; changes are followed while the gateway runs.",
        ),
    ] = None,
    routing: Annotated[
        PolicyName,
        typer.Option(
            "--routing", metavar="|".join(get_args(PolicyName)), help="Which server gets a request."
        ),
    ] = "prefix-affinity",
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", callback=usable, help="PEM file; serves HTTPS."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", callback=usable, help="Its private key, PEM.")
    ] = None,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline", min=0.1, metavar="SECONDS", help="Most seconds that a search may take."
        ),
    ] = 600.0,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1024, metavar="BYTES", help="Most bytes of a request.")
    ] = 4 << 20,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FILE|NAME",
            help="A file of terms and patterns to filter by, or a filter of another package; "
            "several times for several.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Web pages of this origin may read answers; several times, or *.",
        ),
    ] = None,
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(
            "--otlp-endpoint",
            metavar="URL",
            help="Send traces to this OpenTelemetry collector, such as http://localhost:4318.",
            show_default="OTEL_EXPORTER_OTLP_ENDPOINT, or none",
        ),
    ] = None,
    keep_prompts: Annotated[
        bool,
        typer.Option("--keep-prompts", help="Keep prompts and answers in the log of requests."),
    ] = False,
    addresses: Annotated[
        bool,
        typer.Option(
            "--keep-addresses/--no-addresses",
            help="Keep the addresses of clients in the log of requests.",
        ),
    ] = True,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            min=0,
            metavar="SECONDS",
            help="After SIGTERM, for requests that run; nothing new is taken meanwhile.",
        ),
    ] = 30.0,
) -> None:
    """Serve generation and searches as an OpenAI-compatible API until Ctrl-C."""
    process.set_up()  # before gRPC is imported
    from tts.gateway.call import Settings
    from tts.gateway.http_server import Listen, Upstreams, serve

    rules, plugins = _filters(filters or [])
    chain = FilterChain.load(rules, plugins)
    listen = Listen(host, port, certificate, key, _metrics_at(metrics))
    settings = Settings(
        max_body,
        deadline,
        cors_origins=tuple(cors or ()),
        otlp_endpoint=otlp_endpoint,
        keep_prompts=keep_prompts,
        keep_addresses=addresses,
    )
    upstreams = Upstreams(tuple(endpoint or ()), endpoints_file, routing)
    own = None
    if verifier is not None:
        own = load_all({"verifier": source_of(verifier)})["verifier"].value
    lines = ProgressLines()
    with lines:
        drain = Drain(grace, lines.say)
        serving = serve(
            deployment,
            listen,
            upstreams,
            settings,
            chain,
            drain,
            lines.say,
            lines.loading,
            kind=server,
            verifier=own,
        )
        interruptible(serving, lines.say, drain=drain.begin)


def _metrics_at(text: str | None) -> Listen | None:
    """Where the metrics are served besides; raises BadParameter."""
    from tts.gateway.http_server import Listen

    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(
            f"{text!r:.60} is neither PORT nor HOST:PORT", param_hint="--metrics"
        )
    return Listen(host.strip("[]") or Listen.host, int(port))


def _filters(names: list[str]) -> tuple[Path | None, list[str]]:
    """The file of rules among what `--filter` names, and the filters of other packages."""
    files = [name for name in names if "/" in name or "." in name]
    if len(files) > 1:
        raise typer.BadParameter("one file of rules at most", param_hint="--filter")
    for name in files:
        usable(Path(name))
    return (Path(files[0]) if files else None), [name for name in names if name not in files]
