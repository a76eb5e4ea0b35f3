"""From a request for text to its answer: what is asked, what generates or searches, what is sent.

    completions ──► samples of the generator
                ├─► searches ────┐
                └─► candidates ──┴─► a search, new or running ──► tts.session
                      └──► parts of an answer ──► respond: whole, or as a stream

| module | job |
|---|---|
| completions | texts, chats and responses: plain generation, or a search by the model's name |
| prompts | texts and chats, filtered, with their thinking, as token ids |
| structured | the form that a request asks of its answer, as the guide of an output. Pure |
| tool_turns, candidates | a turn with tools; a search's, by votes over whole candidates |
| search_request | which search is asked for |
| searches | what it may take, its start, its progress and its answer, in the form asked for |
| respond | the one way to answer, whole or as a stream; a search that is begun or joined |
"""
