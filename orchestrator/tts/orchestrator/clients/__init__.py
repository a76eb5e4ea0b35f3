"""Clients of the two engines over gRPC."""
