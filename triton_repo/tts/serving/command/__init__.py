"""The command that runs a Triton server, here or in a container, and where it listens."""
