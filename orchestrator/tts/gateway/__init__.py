"""The gateway: generation and test-time search behind the API of OpenAI's clients. docs/gateway.md.

    HTTP (granian) ──► app ──► completions, chat ──► generation ──► token streams, the generator
                               searches ────────────► tts.session, the driver
                               pooling, tokens, status

| module | job |
|---|---|
| http_server | the HTTP server: where it listens, TLS, how it ends |
| process | threads, garbage collection and files of the process |
| draining | what runs comes to its end after SIGTERM, and nothing new begins |
| local_servers | the servers of this machine, or one of its own, which is kept running |
| following, server_names | servers that were named, as they change: in a file, by DNS |
| app | which handler a path has; errors, disconnected clients, limits of a request's body |
| exchange | one request and its response |
| openai/ | what a request may say, what an answer looks like, events as bytes. Pure |
| detokenizer, stop_strings | text from tokens while they come. Pure |
| generation | samples of the generator: prompts, choices, deltas |
| completions, chat | plain generation, and searches by the name of the model |
| search_request, searches | which search is asked for; its response |
| running_search, joining | a search while it runs; the same request twice is one search |
| pooling, tokens | scores of steps; texts and token ids |
| status, openapi | whether it lives and can answer, its models and metrics; its API |
| safety/, observability/ | keys, limits and filters; records, metrics and traces |
"""
