"""Engines in process: the OpenVINO host engine behind the Triton models."""
