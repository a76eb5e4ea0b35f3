"""OpenAI's API as data: what a request may say, what an answer looks like, errors. Pure.

| module | job |
|---|---|
| errors | an error as clients read it, and which of ours becomes which |
| requests | the requests as typed structures |
| messages, tools, formats | what they hold: messages, tools, what is asked of an answer's form |
| fields | fields that are ignored, and those that cannot be honoured |
| answers | what an answer is made of, whatever its form |
| completion_encoders | answers of completions and of chats, whole and as events |
| responses | the Responses API: its requests as chats |
| response_encoder | answers of chats in the form of the Responses API |
"""
