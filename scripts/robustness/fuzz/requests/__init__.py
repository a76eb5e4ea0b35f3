"""Hostile gRPC requests to a real server of the demo pair.

| module | job |
|---|---|
| requests | a ModelInferRequest, made hostile by a seed |
| attempts | what a client sends and how it behaves, drawn by a seed |
| client | one attempt against a server, and what came of it |
| served | `tts serve` in a process of its own: its memory, its deaths, what it leaves |
| campaign | attempts by the thousand, and what must hold of the server meanwhile and afterwards |
"""
