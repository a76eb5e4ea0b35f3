"""What OpenAI-compatible servers and proxies take for a token."""
