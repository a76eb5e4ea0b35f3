"""Parameters of `auto`, and where its policy comes from.

A policy is a JSON file (`tts.search.auto.Policy`); `tts runs calibrate` makes one from
finished runs. The default one is the demo pair's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from tts.build.input_files import Unreadable, parse_json, read_text
from tts.build.spec import explain
from tts.search import AnswerOf, SampleSearchConfig, Search, SearchConfig, SeedOf
from tts.search.auto import AutoSearch, Budget, Policy, common_parameters

DEFAULT_POLICY = Path(__file__).parent / "demo_policy.json"
"""The demo pair's policy, made from 300 problems of another seed than those reported."""


class AutoConfig(SearchConfig):
    """Parameters of the compute-optimal choice.

    `n` is its mean cost: a problem may take as many tokens as so many whole chains, on average over
    problems like those that the policy was made from. How many completions come out is chosen.
    """

    policy: Budget
    """The budget for `n` of a policy, which is given by its file; by default the demo's."""

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        policy = values.get("policy", str(DEFAULT_POLICY))
        n = values.get("n", cls.model_fields["n"].default)
        if isinstance(policy, str) and isinstance(n, int) and n > 0:
            return {**values, "policy": read_policy(Path(policy)).budget(n)}
        return values

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        samples = common_parameters(self, self.policy.samples)

        def choose(mean_score: float) -> SearchConfig:
            return self.policy.choose(mean_score).config(self)

        return AutoSearch(SampleSearchConfig.model_validate(samples), choose, seed, answer_of)


def read_policy(file: Path) -> Policy:
    """The policy in a file; raises ValueError saying what is wrong with it."""
    try:
        return Policy.model_validate(parse_json(read_text(file), strict=True))
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}") from None
    except Unreadable as error:
        raise ValueError(f"{file}: {error}") from error
    except ValidationError as error:
        raise ValueError(f"{file} is not a policy:\n{explain(error, Policy)}") from error
