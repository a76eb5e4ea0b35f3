"""The search core: pure state machines. No IO, no clock, no asyncio, no engine."""

from .beam_search import BeamSearch, BeamSearchConfig
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import node_seed
from .tree import Node, NodePath, Tree
from .types import (
    Aggregation,
    Completion,
    Expand,
    Fate,
    Generated,
    Sampling,
    Score,
    Scored,
    Search,
    SearchResult,
    Stop,
    Thought,
    Work,
    quantise,
)

__all__ = [
    "Aggregation",
    "BeamSearch",
    "BeamSearchConfig",
    "Completion",
    "Expand",
    "Fate",
    "Generated",
    "Node",
    "NodePath",
    "SampleSearch",
    "SampleSearchConfig",
    "Sampling",
    "Score",
    "Scored",
    "Search",
    "SearchResult",
    "Stop",
    "Thought",
    "Tree",
    "Work",
    "node_seed",
    "quantise",
]
