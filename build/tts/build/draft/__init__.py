"""A new deployment file: from what is known of the machine and the models to the text of the file.

Nothing here asks the user, the network or the machine. The memory plans that size a pair read
config.json of its checkpoints, as they always do.

| module | job |
|---|---|
| facts | `Machine`, `CompiledModel`, `ServedModel`, `Choices`: what a draft is made from |
| values | `drafted`: the deployment, with values and sizes that suit models and machine |
| text | `as_text`: the file, by deployment.yaml.j2, which explains each field |
"""

from .facts import Choices, CompiledModel, FunctionModel, Machine, Model, ServedModel
from .text import as_text
from .values import SYSTEM_PROMPT, drafted

__all__ = [
    "SYSTEM_PROMPT",
    "Choices",
    "CompiledModel",
    "FunctionModel",
    "Machine",
    "Model",
    "ServedModel",
    "as_text",
    "drafted",
]
