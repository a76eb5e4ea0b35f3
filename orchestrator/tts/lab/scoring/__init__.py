"""`tts score`: a verifier measured on labels.

| module | job |
|---|---|
| chains | a candidate solution in steps, and with its scores. Pure |
"""
