"""The search core: pure state machines. No IO, no clock, no asyncio, no engine."""

from .beam_search import BeamSearch, BeamSearchConfig
from .config import SearchConfig
from .dvts import DvtsConfig, DvtsSearch
from .early_stop import AnswerForm, AnswerOf
from .particle_filtering import ParticleConfig, ParticleSearch
from .rebase import RebaseConfig, RebaseSearch
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import node_seed
from .step_search import StepConfig
from .tree import Node, NodePath, Tree
from .types import (
    Aggregation,
    Completion,
    Expand,
    Fate,
    Generated,
    Guess,
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
    "AnswerForm",
    "AnswerOf",
    "BeamSearch",
    "BeamSearchConfig",
    "Completion",
    "DvtsConfig",
    "DvtsSearch",
    "Expand",
    "Fate",
    "Generated",
    "Guess",
    "Node",
    "NodePath",
    "ParticleConfig",
    "ParticleSearch",
    "RebaseConfig",
    "RebaseSearch",
    "SampleSearch",
    "SampleSearchConfig",
    "Sampling",
    "Score",
    "Scored",
    "Search",
    "SearchConfig",
    "SearchResult",
    "StepConfig",
    "Stop",
    "Thought",
    "Tree",
    "Work",
    "node_seed",
    "quantise",
]
