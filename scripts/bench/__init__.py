"""Measurements of things side by side: `scripts/run bench.NAME`.

`common` and `instant_server` (a Triton server whose models answer at once) are parts of several.
"""
