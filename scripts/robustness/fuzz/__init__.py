"""Hostile files for every reader (`files`), and hostile gRPC requests to a server (`requests`)."""
