"""The Python API: a session holds the engines, solves problems and keeps runs."""
