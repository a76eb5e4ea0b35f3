"""The search core: pure state machines. No IO, no clock, no asyncio, no engine.

| module | job |
|---|---|
| thought | values: thoughts, node paths, their seeds, fates, scores and how they aggregate |
| tree | the nodes of one problem by path, their digest, and the completions of a search cut short |
| protocol | `Search`: ask, tell, result, and the optional parts |
| base | what strategies share: their parameters, and a search that grows a tree |
| budget | a search whose tokens are limited |
| calibration | the probabilities that scores stand for, as measured |
| votes | the weight of each answer so far |
| step_search | base of the tree strategies: candidates grow, are scored and decided in pools |
| foresight | which expansions may be asked for next |
| pruning | candidates pruned before they are scored |
| auto | the search for any budget, as it is advised |
| advice | what a search is advised, and what came of it |
| allocation | what the problems of a run are advised, by those before them |
| beam_search, dvts, mcts, particle_filtering, rebase, sampling | the strategies |
| adaptive_vote | sampling in rounds until the vote is probably decided |
| confidence_vote | sampling weighed by the generator's own confidence |
"""

from .adaptive_vote import AdaptiveVoteConfig, AdaptiveVoteSearch
from .advice import Advice, Decision
from .allocation import Allocation
from .auto import AutoConfig, AutoSearch
from .base import SearchConfig, StepConfig
from .beam_search import BeamSearch, BeamSearchConfig
from .budget import BudgetedSearch
from .calibration import Calibration, Interval, ScoreMap, isotonic
from .confidence_vote import ConfidenceVoteConfig, ConfidenceVoteSearch, ConfidenceWatch
from .dvts import DvtsConfig, DvtsSearch
from .foresight import ForesightSearch
from .mcts import MctsConfig, MctsSearch
from .particle_filtering import ParticleConfig, ParticleSearch
from .protocol import (
    Expand,
    Generated,
    Guess,
    Limit,
    ResumedWork,
    Score,
    Scored,
    Search,
    SearchResult,
    Work,
)
from .rebase import RebaseConfig, RebaseSearch
from .sampling import SampleSearch, SampleSearchConfig
from .thought import (
    Aggregation,
    Completion,
    Confidence,
    Fate,
    NodePath,
    Sampling,
    SeedOf,
    Stop,
    Thought,
    node_seed,
    quantise,
    significant,
    unit_interval,
)
from .tree import Node, Tree
from .votes import AnswerForm, AnswerOf

__all__ = [
    "AdaptiveVoteConfig",
    "AdaptiveVoteSearch",
    "Advice",
    "Aggregation",
    "Allocation",
    "AnswerForm",
    "AnswerOf",
    "AutoConfig",
    "AutoSearch",
    "BeamSearch",
    "BeamSearchConfig",
    "BudgetedSearch",
    "Calibration",
    "Completion",
    "Confidence",
    "ConfidenceVoteConfig",
    "ConfidenceVoteSearch",
    "ConfidenceWatch",
    "Decision",
    "DvtsConfig",
    "DvtsSearch",
    "Expand",
    "Fate",
    "ForesightSearch",
    "Generated",
    "Guess",
    "Interval",
    "Limit",
    "MctsConfig",
    "MctsSearch",
    "Node",
    "NodePath",
    "ParticleConfig",
    "ParticleSearch",
    "RebaseConfig",
    "RebaseSearch",
    "ResumedWork",
    "SampleSearch",
    "SampleSearchConfig",
    "Sampling",
    "Score",
    "ScoreMap",
    "Scored",
    "Search",
    "SearchConfig",
    "SearchResult",
    "SeedOf",
    "StepConfig",
    "Stop",
    "Thought",
    "Tree",
    "Work",
    "isotonic",
    "node_seed",
    "quantise",
    "significant",
    "unit_interval",
]
