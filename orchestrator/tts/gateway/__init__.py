"""The gateway: generation and test-time search behind the API of OpenAI's clients.
docs/reference/gateway-api.md.

    HTTP (uvicorn) ──► app ──► call ──► answer/ ──► output/ ──► tts.session
                                    └─► readings, status, page

| module | job |
|---|---|
| http_server | a gateway from its start to its end: where it listens, its servers |
| connections | the HTTP server: limits of headers, of their time, of connections |
| process | threads, garbage collection and files of the process |
| draining | what runs comes to its end after SIGTERM, and nothing new begins |
| named_servers | servers that were named, as they change: in a file, by DNS |
| app | which handler a path has, which web pages may use it; errors, disconnected clients |
| exchange | one HTTP request and its response |
| call | one request of a client: read, charged to its key; the service that answers it |
| answer/ | from a request for text to its answer: prompts, forms, what is sent |
| output/ | samples and searches while they run |
| openai/ | what a request may say, what an answer looks like, events as bytes. Pure |
| tools/ | calls of tools in texts, chats and schemas. Pure |
| readings | scores of steps, answers by their scores, token ids |
| status | whether it lives and can answer, its models and what they can set, metrics, its API |
| database | the SQLite file of keys, usage and requests |
| page | the page at `/` |
| safety/, observability/ | keys, limits and filters; records, metrics and traces |
"""
