"""Rendering the Triton model repository; finding, launching and supervising the server."""
