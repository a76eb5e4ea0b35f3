"""Access to a gateway: keys, limits and content filters.

| module | job |
|---|---|
| `keys` | API keys: a file of hashes, and the valid ones in memory |
| `limits` | requests and tokens per minute, budgets, searches at a time, and their headers |
| `shared_limits` | the same limits for all gateways of a user together |
| `usage` | what each key has used, day by day: a file that all gateways share |
| `filters` | content filters of prompts and answers, as a chain of streams; the file of rules |
| `matching` | rules as one expression of RE2; finding all of it in a text that comes in parts |
"""

from .filters import FilterChain, TextStream
from .keys import ApiKey, Keyring, KeyStore, KeysUnusable, keys_file
from .limits import (
    NOTHING,
    Admission,
    KeyLimits,
    Limiter,
    Limits,
    LimitsUnusable,
    Refusal,
    Spent,
)
from .shared_limits import CONFIRMED_S, SharedLimiter, limits_file
from .usage import NO_KEY, Usage, UsageBook, read_usage, usage_file

__all__ = [
    "CONFIRMED_S",
    "NOTHING",
    "NO_KEY",
    "Admission",
    "ApiKey",
    "FilterChain",
    "KeyLimits",
    "KeyStore",
    "Keyring",
    "KeysUnusable",
    "Limiter",
    "Limits",
    "LimitsUnusable",
    "Refusal",
    "SharedLimiter",
    "Spent",
    "TextStream",
    "Usage",
    "UsageBook",
    "keys_file",
    "limits_file",
    "read_usage",
    "usage_file",
]
