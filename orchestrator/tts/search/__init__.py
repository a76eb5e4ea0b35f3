"""The search core: pure state machines. No IO, no clock, no asyncio, no engine.

| module | job |
|---|---|
| thought | values: thoughts, node paths, fates, scores; requests and their answers |
| tree | the nodes of one problem by path, their scores and ranks, and their digest |
| protocol | `Search`: ask, tell, result, and the optional parts |
| base | the parameters that strategies share |
| step_search | the loop: candidates grow, are scored and decided in pools |
| ahead | `Hints`: guesses at expansions, scores that are not needed; and resumed work |
| step_hints | the hints of the loop |
| pruning | candidates pruned before they are scored |
| seeds | the seed of each sample |
| cut_short | the completions of a search that a limit ends |
| budget | a search whose tokens are limited |
| calibration | the probabilities that scores stand for, as measured |
| confidence | the confidence of a chain, from its log-probabilities |
| votes | the weight of each answer so far |
| seen_values | the range of a tree's values |
| auto | the search for any budget, as it is advised |
| advice | what a search is advised, and what came of it |
| allocation | what the problems of a run are advised, by those before them |
| beam_search, dvts, mcts, particle_filtering, rebase, sampling | the strategies |
| adaptive_vote | sampling in rounds until the vote is probably decided |
| confidence_vote | sampling weighed by the generator's own confidence |
"""

from .adaptive_vote import AdaptiveVoteConfig
from .advice import Advice, Decision
from .ahead import Guess, Hints, ResumedWork
from .allocation import Allocation
from .auto import AutoConfig, AutoSearch
from .base import SearchConfig, StepConfig
from .beam_search import BeamSearch, BeamSearchConfig
from .budget import BudgetedSearch
from .calibration import Calibration, ScoreMap, isotonic
from .confidence import Confidence, ConfidenceWatch
from .confidence_vote import ConfidenceVoteConfig
from .dvts import DvtsConfig
from .mcts import MctsConfig
from .particle_filtering import ParticleConfig
from .protocol import Limit, Search, SearchResult
from .rebase import RebaseConfig
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import SeedOf, node_seed, unit_interval
from .step_hints import StepHints
from .step_search import StepSearch
from .thought import (
    Aggregation,
    Completion,
    Expand,
    Fate,
    Generated,
    NodePath,
    Sampling,
    Score,
    Scored,
    Stop,
    Thought,
    Work,
    quantise,
    significant,
)
from .tree import Node, Tree
from .votes import AnswerForm, AnswerOf

__all__ = [
    "AdaptiveVoteConfig",
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
    "ConfidenceWatch",
    "Decision",
    "DvtsConfig",
    "Expand",
    "Fate",
    "Generated",
    "Guess",
    "Hints",
    "Limit",
    "MctsConfig",
    "Node",
    "NodePath",
    "ParticleConfig",
    "RebaseConfig",
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
    "StepHints",
    "StepSearch",
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
