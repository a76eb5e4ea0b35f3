"""The gateway: generation and test-time search behind the API of OpenAI's clients.
docs/reference/gateway-api.md.

    HTTP (uvicorn) ──► app ──► completions ──► plain ─────► generation: streams of the generator
                                          └──► searches ──► tts.session: the driver
                                          └──► candidates: a search's turn with tools
                               pooling, tokens, status, page

| module | job |
|---|---|
| http_server | a gateway from its start to its end: where it listens, its servers |
| connections | the HTTP server: limits of headers, of their time, of connections |
| process | threads, garbage collection and files of the process |
| draining | what runs comes to its end after SIGTERM, and nothing new begins |
| named_servers | servers that were named, as they change: in a file, by DNS |
| app | which handler a path has; errors, disconnected clients, limits of a request's body |
| exchange | one HTTP request and its response |
| service | what handlers work with: engines, settings, keys; reading and admitting a request |
| openai/ | what a request may say, what an answer looks like, events as bytes. Pure |
| completions | completions and chats: plain generation, or a search by the name of the model |
| responses | the Responses API: a chat under another name |
| respond | the one way to answer them, whole or as a stream |
| prompts | texts and chats, filtered and as token ids |
| generation, sample_text | samples of the generator; their text while the tokens come |
| plain | samples as parts of an answer |
| structured | the form that a request asks of its answer, as the guide of an output. Pure |
| tools/ | calls of tools in texts, chats and schemas; votes of candidates. Pure |
| tool_turns, candidates | a turn with tools; the same for a search |
| search_request, searches | which search is asked for; its progress and its answer as parts |
| closing | a search's answer in the form that was asked for |
| running_searches | searches while they run; the same request twice is one search |
| pooling, tokens, log_probs | scores of steps; texts and token ids; log-probabilities |
| model_card | what a request to a model can set, and what to ask it |
| status, openapi | whether it lives and can answer, its models and metrics; its API |
| origins | which web pages may use it |
| database | the SQLite file of keys, usage and requests |
| ledger | a running gateway's hold on it: keys in memory, usage and requests on their way |
| page/ | the page at `/` |
| safety/, observability/ | keys, limits and filters; records, metrics and traces |
"""
