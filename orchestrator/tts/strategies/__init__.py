"""The search strategies by name, and their parameters."""
