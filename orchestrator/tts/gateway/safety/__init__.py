"""Access to a gateway: keys, limits and content filters.

| module | job |
|---|---|
| `keys` | API keys: a file of hashes, and the valid ones in memory |
| `limits` | requests and tokens per minute, budgets, searches at a time, and their headers |
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
    Refusal,
    Spent,
)
from .usage import NO_KEY, Usage, UsageBook, read_usage, usage_file

__all__ = [
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
    "Refusal",
    "Spent",
    "TextStream",
    "Usage",
    "UsageBook",
    "keys_file",
    "read_usage",
    "usage_file",
]
