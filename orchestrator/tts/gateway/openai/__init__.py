"""OpenAI's API as data: what a request may say, what an answer looks like, errors. Pure.

| module | job |
|---|---|
| errors | an error as clients read it, and which of ours becomes which |
| requests | the requests as typed structures; fields that are ignored, or cannot be honoured |
| messages | the messages of a chat, and its tools |
| answers | what an answer is made of; how completions and chats write it |
| responses | the Responses API: its requests as chats |
| response_encoder | answers of chats in the form of the Responses API |
"""
