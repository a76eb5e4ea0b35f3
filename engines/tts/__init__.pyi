# Empty: it tells pyright that this folder holds packages of the regular package `tts`, which is
# orchestrator/tts/__init__.py. Python and mypy need no such file; tests/test_layout.py says more.
