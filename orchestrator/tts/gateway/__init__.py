"""The gateway: test-time search behind an HTTP API that everybody's clients speak."""
