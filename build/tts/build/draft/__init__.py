"""A new deployment file: from what is known of the machine and the models to the text of the file.

Nothing here asks the user, the network or the machine. The memory plans that size a pair read
config.json of its checkpoints, as they always do.

| module | job |
|---|---|
| facts | `Machine`, `CompiledModel`, `ServedModel`, `Answers`: what a draft is made from |
| values | `draft`: the fields worth setting, and why each has its value |
| fit | precision, placement and KV pools that fit this machine, by the memory plans |
| text | `as_text`: the YAML, each field below the description that its model has in the source |
"""

from .facts import Answers, CompiledModel, FunctionModel, Machine, Model, ServedModel
from .text import as_text
from .values import Draft, draft

__all__ = [
    "Answers",
    "CompiledModel",
    "Draft",
    "FunctionModel",
    "Machine",
    "Model",
    "ServedModel",
    "as_text",
    "draft",
]
