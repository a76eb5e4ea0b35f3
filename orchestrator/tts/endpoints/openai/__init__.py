"""Engines that already run, asked by HTTP: vLLM, SGLang, llama.cpp, trtllm-serve and their like.

| module | job |
|---|---|
| server | a server, once it was asked, and whether it reuses prefixes |
| probing | what it is and can do, by asking it |
| generator, verifier | the two endpoints |
| dialects | what each kind of server is sent and answers: the one place to add a server. Pure |
| answers | values of an answer, checked. Pure |
| shared_requests | several samples or prompts in one request |
| http_client | requests, answers and errors |
"""
