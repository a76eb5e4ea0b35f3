"""Access to a gateway: keys, limits and content filters.

| module | job |
|---|---|
| `keys` | API keys: hashes in the database, and the valid ones in memory |
| `limits` | requests and tokens per minute, budgets, searches at a time, and their headers |
| `usage` | what each key has used, day by day, over all gateways |
| `filters` | content filters of prompts and answers, as a chain of streams; the file of rules |
| `matching` | rules as one expression of RE2; finding all of it in a text that comes in parts |
"""
