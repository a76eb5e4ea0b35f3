"""OpenAI's API as data: what a request may say, what an answer looks like, errors. Pure.

| module | job |
|---|---|
| errors | an error as clients read it, and which of ours becomes which |
| fields | fields that are known and cannot be honoured, and those that nobody knows |
| requests | the requests as typed structures, read from a body |
| answers | answers as structures |
| events | the events of a streamed answer, from templates of bytes |
"""
