"""What TensorRT-LLM's Triton backend expects of a model repository, and the check against it.

| module | job |
|---|---|
| facts | the contract's data (*.json): tensors, parameters, rules of a launch |
| expected | the configurations that a deployment must have, built from facts, not from templates |
| check | findings: where a rendered repository differs, why it matters, how to fix it |
"""

from .check import Finding, check_repository

__all__ = ["Finding", "check_repository"]
