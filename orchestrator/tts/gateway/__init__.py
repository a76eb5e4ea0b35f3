"""The gateway: generation and test-time search behind the API of OpenAI's clients. docs/gateway.md.

    HTTP (granian) ──► app ──► completions, chat ──► generation ──► token streams, the generator
                               searches ────────────► tts.session, the driver
                               pooling, tokens, models, health

| module | job |
|---|---|
| server | the HTTP server: where it listens, TLS, how it ends |
| process | threads, garbage collection and files of the process |
| draining | what runs comes to its end after SIGTERM, and nothing new begins |
| local_servers | the servers of this machine, or one of its own, which is kept running |
| following, replicas_file, names | servers that were named, as they change: in a file, by DNS |
| app | which handler a path has; errors, disconnected clients, limits of a request's body |
| exchange | one request and its response |
| openai/ | what a request may say, what an answer looks like, events as bytes. Pure |
| detokenizer, stop_strings | text from tokens while they come. Pure |
| generation | samples of the generator: prompts, choices, deltas |
| completions, chat | plain generation, and searches by the name of the model |
| searches, joining | a search as a response; the same request twice is one search |
| pooling | scores of steps; tokens, models, health: what their names say |
| safety/, observability/ | keys, limits and filters; records, metrics and traces |
"""
