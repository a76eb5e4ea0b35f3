"""Options of `tts gateway` and its commands: serve, requests, usage, keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from tts.fleet.routing import PolicyName

from . import JsonOption, ServerOption, VerifierOption, completed, usable


class By(StrEnum):
    """The subject of the table's rows."""

    key = "key"
    model = "model"
    day = "day"


DAY = "%Y-%m-%d"


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Serve generation and searches as an OpenAI-compatible API until Ctrl-C."""

    deployment: Annotated[
        list[str],
        typer.Argument(
            metavar="DEPLOYMENT...",
            help="Deployment files or bundled names; the model's name chooses among several.",
            autocompletion=completed("deployments"),
        ),
    ]
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need keys.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: one that is free.")] = 8080
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve /metrics here too, to everyone, without a key; on loopback unless HOST is "
            "given.",
        ),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="gRPC of a server of this deployment, or dns:NAME:PORT for all addresses of a "
            "name, which is followed; several times for several.",
            show_default="those of this machine, or one that is started",
        ),
    ] = None
    verifier: VerifierOption = None
    server: ServerOption = None
    endpoints_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=usable,
            help="File of servers, one per line; changes are followed while the gateway runs.",
        ),
    ] = None
    routing: Annotated[
        PolicyName,
        typer.Option(metavar="|".join(get_args(PolicyName)), help="Which server gets a request."),
    ] = "prefix-affinity"
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", callback=usable, help="PEM file; serves HTTPS."),
    ] = None
    key: Annotated[
        Path | None, typer.Option("--tls-key", callback=usable, help="Its private key, PEM.")
    ] = None
    deadline: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Most seconds that a search may take."),
    ] = 600.0
    max_body: Annotated[
        int, typer.Option(min=1024, metavar="BYTES", help="Most bytes of a request.")
    ] = 4 << 20
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FILE|NAME",
            help="A file of terms and patterns to filter by, or a filter of another package; "
            "several times for several.",
        ),
    ] = None
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Web pages of this origin may read answers; several times, or *.",
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
            help="After SIGTERM, for requests that run; nothing new is taken meanwhile.",
        ),
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Show and export the requests that gateways have had, also while they run."""

    deployment: Annotated[
        str | None,
        typer.Argument(
            metavar="DEPLOYMENT",
            autocompletion=completed("deployments"),
            help="The name of the deployment.",
            show_default="all",
        ),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="FILE",
            help="A database elsewhere, such as a copy.",
            show_default="gateway/gateway.db in TTS_HOME",
        ),
    ] = None
    last: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The latest N.", show_default="20 in a table, or all"
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only requests from this time on: 2026-01-31, 2026-01-31T12:00, 90s, 15m, 2h, 7d.",
        ),
    ] = None
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only requests before this time.")
    ] = None
    form: Annotated[
        Literal["table", "jsonl"],
        typer.Option("--format", help="A table to read, or everything as JSON lines."),
    ] = "table"
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Add up the requests and tokens of each API key; days are UTC."""

    since: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", formats=[DAY], help="First day.", show_default="this month's"),
    ] = None
    until: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", formats=[DAY], help="Last day.", show_default="-"),
    ] = None
    by: Annotated[
        list[By] | None,
        typer.Option(help="What to add up by; several times.", show_default="key"),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class CreateKey:
    """Make a key and print it, this once: only its hash is kept."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most requests.", show_default="no limit")
    ] = None
    tokens_per_minute: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Most tokens: prompts, answers and searches together.",
            show_default="no limit",
        ),
    ] = None
    concurrent_searches: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Most at a time.", show_default="no limit"),
    ] = None
    tokens_per_day: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Budget of a day (UTC), for all gateways together.",
            show_default="no limit",
        ),
    ] = None
    tokens_per_month: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Budget of a month.", show_default="no limit"),
    ] = None
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When it ends: after 30d or 12h, or with the day 2027-01-31 (UTC).",
            show_default="never",
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A model that it may use, such as demo or 'demo:*'; several times.",
            show_default="all",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ListKeys:
    """List keys with their limits, and who made and revoked them; the keys are not known."""

    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class RevokeKey:
    """Make a key invalid. Running gateways refuse it within 0.2 s."""

    key: Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, or its name.")]
