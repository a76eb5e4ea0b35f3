"""What TensorRT-LLM's Triton backend expects of a model repository, and the check against it.

| module | job |
|---|---|
| facts | the contract's data (*.json): tensors, parameters, rules of a launch |
| check | findings: where a repository is not as rendered now, why it matters, how to fix it |
"""

from .check import Finding, check_repository, check_values

__all__ = ["Finding", "check_repository", "check_values"]
