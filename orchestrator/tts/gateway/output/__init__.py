"""Output of the engines while it comes: samples of the generator, and searches.

| module | job |
|---|---|
| generation, sample_text | samples of the generator; their text while the tokens come |
| running_searches | searches while they run; the same request twice is one search |
"""
