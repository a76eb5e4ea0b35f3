"""What a gateway must stand: wrong, cut, silent and numerous clients, and kill -9.

| module | job |
|---|---|
| running | gateways of the demo pair in processes of their own |
| raw | requests as bytes on a socket, and what comes back |
| hostile | requests that are wrong, oversize, slow or broken off, over raw sockets |
| from_document | requests made up from the OpenAPI document, by schemathesis |
| idle | thousands of connections that say nothing |
| killed | kill -9 while requests are answered: what the request log then holds |
| replicas | two servers, one killed under load, one added |
"""
