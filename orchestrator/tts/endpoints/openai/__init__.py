"""Engines that already run, asked by HTTP: vLLM, SGLang, llama.cpp, trtllm-serve and their like.

| module | job |
|---|---|
| server | a server, once it was asked |
| capabilities | what a server is and can do, as a value |
| probing | finds that out, by asking it |
| generator, verifier | the two endpoints |
| dialects | what each kind of server is sent and answers: the one place to add a server. Pure |
| answers | values of an answer, checked. Pure |
| outputs | where an output ends, in token ids. Pure |
| siblings | several samples in one request |
| http_client | requests, answers and errors |
"""
