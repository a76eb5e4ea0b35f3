"""The clients that people have, one program for each, in an environment of its own.

| module | client |
|---|---|
| openai_client | the package `openai`, of whichever version |
| its_hub_client | its_hub's beam search and particle filtering |
| browser_client | Chromium, by playwright |

Each prints one JSON object: the versions, and what was seen.
"""
