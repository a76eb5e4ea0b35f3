"""The search core: pure state machines. No IO, no clock, no asyncio, no engine.

| module | job |
|---|---|
| thought | values: thoughts, node paths, fates, scores; requests and their answers |
| tree | the nodes of one problem by path, their scores and ranks, and their digest |
| protocol | `Search`: ask, tell, result, and the optional parts; the parameters of strategies |
| step_search | the loop: candidates grow, are scored and decided in pools |
| step_hints | beside the loop: candidates pruned before they are scored, and guesses |
| ahead | `Hints`: guesses at expansions, scores that are not needed; and resumed work |
| seeds | the seed of each sample |
| cut_short | the completions of a search that a limit ends |
| budget | a search whose tokens are limited |
| calibration | the probabilities that scores stand for, as measured |
| votes | the weight of each answer so far, and how sure the leader is |
| auto | the search for any budget, as it is advised |
| allocation | what the problems of a run are advised, by those before them |
| beam_search, dvts, mcts, particle_filtering, rebase | the strategies over steps |
| sampling | independent samples, at once or in rounds until the vote is probably decided |
| confidence_vote | sampling weighed by the generator's own confidence |
"""

from .ahead import Guess, Hints, ResumedWork
from .allocation import Advice, Allocation, Decision
from .auto import AutoConfig, AutoSearch
from .beam_search import BeamSearchConfig
from .budget import BudgetedSearch
from .calibration import Calibration, ScoreMap
from .confidence_vote import ConfidenceVoteConfig, ConfidenceWatch
from .dvts import DvtsConfig
from .mcts import MctsConfig
from .particle_filtering import ParticleConfig
from .protocol import Limit, Search, SearchConfig, SearchResult, StepConfig
from .rebase import RebaseConfig
from .sampling import AdaptiveVoteConfig, SampleSearch, SampleSearchConfig
from .seeds import SeedOf, node_seed, unit_interval
from .step_hints import StepHints
from .step_search import StepSearch
from .thought import (
    Aggregation,
    Completion,
    Confidence,
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
    "node_seed",
    "quantise",
    "significant",
    "unit_interval",
]
