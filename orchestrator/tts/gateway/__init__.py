"""The gateway: generation and test-time search behind the API of OpenAI's clients.
docs/reference/gateway-api.md.

    HTTP (uvicorn) ──► app ──► call ──► answer/ ──► output/ ──► tts.session
                                    └─► pooling, rerank, tokens, status, page

| module | job |
|---|---|
| http_server | a gateway from its start to its end: where it listens, its servers |
| connections | the HTTP server: limits of headers, of their time, of connections |
| process | threads, garbage collection and files of the process |
| draining | what runs comes to its end after SIGTERM, and nothing new begins |
| named_servers | servers that were named, as they change: in a file, by DNS |
| app | which handler a path has; errors, disconnected clients, limits of a request's body |
| exchange | one HTTP request and its response |
| call | one request of a client: read, charged to its key; what every handler is given |
| service | who answers calls: engines, settings, keys |
| answer/ | from a request for text to its answer: prompts, forms, what is sent |
| output/ | samples and searches while they run |
| openai/ | what a request may say, what an answer looks like, events as bytes. Pure |
| tools/ | calls of tools in texts, chats and schemas; votes of candidates. Pure |
| pooling, rerank, tokens | scores of steps; answers by their scores; texts and token ids |
| model_card | what a request to a model can set, and what to ask it |
| status, openapi | whether it lives and can answer, its models and metrics; its API |
| origins | which web pages may use it |
| database | the SQLite file of keys, usage and requests |
| page/ | the page at `/` |
| safety/, observability/ | keys, limits and filters; records, metrics and traces |
"""
