"""Programs written for OpenAI's API against a gateway: forms of answers, tools, agents.

| module | job |
|---|---|
| __main__ | environments, gateways, the table |
| deployment | the demo pair with a chat template that knows tools |
| agent_gateway | a gateway whose model is scripted: it uses two tools and answers |
| clients | what each client does, in an environment of its own; `clients.mjs` those of Node |
"""
