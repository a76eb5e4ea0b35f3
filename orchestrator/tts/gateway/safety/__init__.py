"""Who may use a gateway, how much, and what for.

| module | job |
|---|---|
| `keys` | API keys: a file of hashes, and the valid ones in memory |
| `limits` | requests and tokens per minute, searches at a time, and the headers that tell them |
| `filters` | content filters of prompts and answers, as a chain of streams; the file of rules |
| `matching` | rules as one expression of RE2; finding all of it in a text that comes in parts |
"""

from .filters import FilterChain, TextStream
from .keys import ApiKey, Keyring, KeyStore, KeysUnusable, keys_file
from .limits import Admission, KeyLimits, Limiter, Refusal

__all__ = [
    "Admission",
    "ApiKey",
    "FilterChain",
    "KeyLimits",
    "KeyStore",
    "Keyring",
    "KeysUnusable",
    "Limiter",
    "Refusal",
    "TextStream",
    "keys_file",
]
