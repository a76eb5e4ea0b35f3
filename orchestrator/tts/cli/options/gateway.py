"""Options of `tts gateway` and its commands: serve, requests, usage, backup, keys."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from tts.fleet.routing import PolicyName

from . import JsonOption, ServerOption, VerifierOption, deployment_argument, path_option


class By(StrEnum):
    """The subject of the table's rows."""

    key = "key"
    model = "model"
    day = "day"


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Serve generation and searches as an OpenAI-compatible API until Ctrl-C."""

    deployment: Annotated[
        list[str],
        deployment_argument(
            "Deployment files or bundled names; the model's name chooses among several."
        ),
    ]
    host: Annotated[
        str,
        typer.Option(metavar="HOST", help="Address to listen on; any but loopback needs API keys."),
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8080
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Also serve /metrics here, to anyone, without a key; on loopback unless HOST is "
            "given.",
        ),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="gRPC address of a server, or dns:NAME:PORT for all addresses of a name, kept up "
            "to date. Repeat for several.",
            show_default="those of this machine, or one that is started",
        ),
    ] = None
    verifier: VerifierOption = None
    server: ServerOption = None
    endpoints_file: Annotated[
        Path | None,
        path_option(
            "File with a server per line; changes take effect while the gateway runs.",
            metavar="FILE",
        ),
    ] = None
    routing: Annotated[
        PolicyName,
        typer.Option(
            metavar="POLICY",
            help=f"How requests are divided among servers: {', '.join(get_args(PolicyName))}.",
        ),
    ] = "prefix-affinity"
    certificate: Annotated[
        Path | None, path_option("Certificate (PEM), to serve HTTPS.", "--tls-certificate")
    ] = None
    key: Annotated[Path | None, path_option("Its private key (PEM).", "--tls-key")] = None
    deadline: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Longest time for a search.")
    ] = 600.0
    max_body: Annotated[int, typer.Option(min=1024, metavar="BYTES", help="Largest request.")] = (
        4 << 20
    )
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FILE|NAME",
            help="File of terms and patterns to filter, or the name of an installed filter. "
            "Repeat for several.",
        ),
    ] = None
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Origin whose web pages may read answers, or *. Repeat for several.",
        ),
    ] = None
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send traces to this OpenTelemetry collector, such as http://localhost:4318.",
            show_default="OTEL_EXPORTER_OTLP_ENDPOINT, or none",
        ),
    ] = None
    keep_prompts: Annotated[
        bool,
        typer.Option("--keep-prompts", help="Keep prompts and answers in the log of requests."),
    ] = False
    addresses: Annotated[
        bool,
        typer.Option(
            "--keep-addresses/--no-addresses",
            help="Keep the addresses of clients in the log of requests.",
        ),
    ] = True
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="After SIGTERM, how long running requests may take; new ones are refused.",
        ),
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Show or export the requests of gateways, also while they run."""

    deployment: Annotated[
        str | None, deployment_argument("The name of the deployment.", show_default="all")
    ] = None
    file: Annotated[
        Path | None,
        path_option(
            "Another database, such as a backup.",
            metavar="FILE",
            show_default="gateway/gateway.db in TTS_HOME",
        ),
    ] = None
    last: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the latest N.", show_default="20 in a table, else all"
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="From this time on: 2026-01-31, 2026-01-31T12:00, 90s, 15m, 2h, 7d.",
        ),
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")] = None
    form: Annotated[
        Literal["table", "jsonl"],
        typer.Option("--format", help="A table, or all fields as JSON lines."),
    ] = "table"
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Add up the requests and tokens of each API key; days are UTC."""

    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="First day.", show_default="this month's")
    ] = None
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="Last day.", show_default="-")
    ] = None
    by: Annotated[
        list[By] | None,
        typer.Option(help="Rows: key, model or day. Repeat for several.", show_default="key"),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Backup:
    """Copy keys, usage and requests into a new file, also while gateways run."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy, which must be new.")]


def _limit(what: str) -> Any:
    return typer.Option(
        min=0, max=10**15, metavar="N", help=f"{what}; 0: no limit.", show_default=False
    )


KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, or its name.")]
KeyFileOption = Annotated[
    Path | None,
    path_option(
        "Take the key from this file, as a secret store mounts it, and print none: 32 or more "
        "printable ASCII characters without spaces.",
        metavar="FILE",
    ),
]


@dataclass(frozen=True, kw_only=True)
class KeyFields:
    """What a key may do."""

    requests_per_minute: Annotated[int | None, _limit("Most requests per minute")] = None
    tokens_per_minute: Annotated[
        int | None, _limit("Most tokens per minute: prompts, answers and searches together")
    ] = None
    concurrent_searches: Annotated[int | None, _limit("Most searches at a time")] = None
    tokens_per_day: Annotated[
        int | None, _limit("Budget of a day (UTC), for all gateways together")
    ] = None
    tokens_per_month: Annotated[int | None, _limit("Budget of a month")] = None
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When it ends: after 30d, 12h or 45m, with the day 2027-01-31 (UTC), or never.",
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A model that it may use, such as demo or 'demo:*'; several times. '*': all.",
        ),
    ] = None
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="A note for the list.")] = None


@dataclass(frozen=True, kw_only=True)
class CreateKey(KeyFields):
    """Make a key and print it, this once: only its hash is kept."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
    key_file: KeyFileOption = None


@dataclass(frozen=True, kw_only=True)
class SetKey(KeyFields):
    """Change limits, models, expiry or note of a key; what is not named stays."""

    key: KeyArgument
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End the grace of its replaced secret within this time; 0: now."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RotateKey:
    """Give a key a new secret and print it, this once; name, limits and use stay."""

    key: KeyArgument
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long the old one stays valid: 7d, 12h, 15m; 0: not."
        ),
    ] = "0"
    key_file: KeyFileOption = None


@dataclass(frozen=True, kw_only=True)
class ListKeys:
    """List keys with limits, last use, and who made them; the keys themselves are not known."""

    all: Annotated[
        bool, typer.Option("--all", help="Revoked keys, too, as --json always lists them.")
    ] = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class RevokeKey:
    """Make a key invalid. Running gateways refuse it within 0.2 s."""

    key: KeyArgument
