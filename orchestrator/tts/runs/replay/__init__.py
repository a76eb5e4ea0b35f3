"""Replay: a script decides the results that a search receives, while the engines do work of the
same size.

docs/explanation/simulation.md#replay says what is exact about it and what is not.
"""

from .recording import Recording, read_recording
from .script import ReplayGenerator, ReplayVerifier, Script
from .source import Replay, Source, open_source
from .trace_script import Chain, TraceScript, read_chains

__all__ = [
    "Chain",
    "Recording",
    "Replay",
    "ReplayGenerator",
    "ReplayVerifier",
    "Script",
    "Source",
    "TraceScript",
    "open_source",
    "read_chains",
    "read_recording",
]
