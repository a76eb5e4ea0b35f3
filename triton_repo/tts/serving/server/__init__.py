"""The processes of a server: start, find, watch, stop, and say why it did not start."""
