"""From a request for text to its answer: what is asked, what generates or searches, what is sent.

    completions ──► plain ─────► output.generation: streams of the generator
                └─► searches ──► tts.session: the driver
                └─► candidates: a search's turn with tools
                      └──► parts of an answer ──► respond: whole, or as a stream

| module | job |
|---|---|
| completions | texts, chats and responses: plain generation, or a search by the model's name |
| prompts | texts and chats, filtered and as token ids |
| structured | the form that a request asks of its answer, as the guide of an output. Pure |
| plain | samples as parts of an answer |
| tool_turns, candidates | a turn with tools; the same for a search |
| search_request, searches | which search is asked for; its progress and its answer as parts |
| closing | a search's answer in the form that was asked for |
| respond | the one way to answer, whole or as a stream |
"""
