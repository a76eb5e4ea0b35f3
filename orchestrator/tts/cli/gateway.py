"""`tts gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import BadParameter

from tts.gateway import process
from tts.gateway.draining import Drain
from tts.gateway.safety.filters import FilterChain
from tts.reports.progress import ProgressLines
from tts.session.event_loop import interruptible
from tts.session.functions import load_all, source_of

from .options import usable
from .options.gateway import Gateway

if TYPE_CHECKING:
    from tts.gateway.http_server import Listen


def gateway(options: Gateway) -> None:
    """Run `tts gateway serve`."""
    process.set_up()  # before gRPC is imported
    from tts.gateway.call import Settings
    from tts.gateway.http_server import Listen, Upstreams, serve

    rules, plugins = _filters(options.filters or [])
    chain = FilterChain.load(rules, plugins)
    listen = Listen(
        options.host, options.port, options.certificate, options.key, _metrics_at(options.metrics)
    )
    settings = Settings(
        options.max_body,
        options.deadline,
        cors_origins=tuple(options.cors or ()),
        otlp_endpoint=options.otlp_endpoint,
        keep_prompts=options.keep_prompts,
        keep_addresses=options.addresses,
    )
    upstreams = Upstreams(tuple(options.endpoint or ()), options.endpoints_file, options.routing)
    own = None
    if options.verifier is not None:
        own = load_all({"verifier": source_of(options.verifier)})["verifier"].value
    lines = ProgressLines()
    with lines:
        drain = Drain(options.grace, lines.say)
        serving = serve(
            options.deployment,
            listen,
            upstreams,
            settings,
            chain,
            drain,
            lines.say,
            lines.loading,
            kind=options.server,
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
        raise BadParameter(f"{text!r:.60} is neither PORT nor HOST:PORT", param_hint="--metrics")
    return Listen(host.strip("[]") or Listen.host, int(port))


def _filters(names: list[str]) -> tuple[Path | None, list[str]]:
    """The file of rules among what `--filter` names, and the filters of other packages."""
    files = [name for name in names if "/" in name or "." in name]
    if len(files) > 1:
        raise BadParameter("one file of rules at most", param_hint="--filter")
    for name in files:
        usable(Path(name))
    return (Path(files[0]) if files else None), [name for name in names if name not in files]
