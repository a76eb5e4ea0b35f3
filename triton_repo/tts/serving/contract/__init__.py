"""What NVIDIA's server expects of a model repository, as data, and the check against it."""

from .check import Finding, check_repository

__all__ = ["Finding", "check_repository"]
