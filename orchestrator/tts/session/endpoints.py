"""The endpoints of a run: the server's, or those of the user's own."""

from __future__ import annotations

from tts.endpoints.base import Generator, Verifier
from tts.endpoints.triton import TritonConnection, TritonGenerator, TritonVerifier
from tts.engines import wire
from tts.prompting import Models
from tts.replay import Replay, ReplayGenerator, ReplayVerifier

__all__ = ["replaying", "triton_endpoints"]


def triton_endpoints(models: Models, connection: TritonConnection) -> tuple[Generator, Verifier]:
    """Both engines of a server."""
    generator = TritonGenerator(
        connection,
        end_id=models.end_id,
        step_stop_words=models.step_stop_words,
        end_stop_words=models.end_stop_words,
    )
    return generator, TritonVerifier(connection)


def replaying(replay: Replay, connection: TritonConnection) -> tuple[Generator, Verifier]:
    """Both engines of a server: they do the work of a script, and the script answers."""
    endless = TritonGenerator(connection, end_id=wire.NO_END_ID, step_stop_words=())
    script = replay.script
    return ReplayGenerator(endless, script), ReplayVerifier(TritonVerifier(connection), script)
