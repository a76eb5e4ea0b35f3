"""From a request for text to its answer: what is asked, what generates or searches, what is sent.

    completions ──► plain ───────► samples of the generator
                ├─► searches ────┐
                └─► candidates ──┴─► joining: a search, new or running ──► tts.session
                      └──► parts of an answer ──► respond: whole, or as a stream

| module | job |
|---|---|
| completions | texts, chats and responses: plain generation, or a search by the model's name |
| prompts, thinking | texts and chats, filtered and as token ids; what is said of their thinking |
| structured | the form that a request asks of its answer, as the guide of an output. Pure |
| plain | samples as parts of an answer |
| tool_turns, candidates | a turn with tools; the same for a search |
| search_request, searches | which search is asked for; what it may take, and its start |
| search_answer, closing | its progress and its answer as parts; in the form that was asked for |
| joining | the response by a search: one that a call begins, or the same one that runs |
| respond | the one way to answer, whole or as a stream |
"""
