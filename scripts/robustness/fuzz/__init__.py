"""Hostile files for every reader, and hostile gRPC requests to a server of the demo pair.

| module | job |
|---|---|
| readers | what is read, from what, and by which function |
| files | mutations of a valid file by a seed, each read within a time and a memory |
| run_folders | damaged run folders, read by every command that does |
| requests | a ModelInferRequest, made hostile by a seed |
| attempts | what a client sends and how it behaves, drawn by a seed |
| campaign | attempts by the thousand, and what must hold of the server |
| served | `tts serve` in a process of its own: its memory, its deaths, what it leaves |
"""
