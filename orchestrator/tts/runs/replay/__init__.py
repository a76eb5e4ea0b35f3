"""Replay: a script decides what a search is told, while the engines do work of the same size.

docs/replay.md says what is exact about it and what is not.
"""

from .adapters import ReplayGenerator, ReplayVerifier
from .chains import Chain, read_chains
from .recording import Recording, read_recording
from .script import Script
from .source import Replay, Source, open_source
from .trace_script import TraceScript

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
