"""The gateway beside the server behind it: `__main__` measures, `load` is the clients' process."""
