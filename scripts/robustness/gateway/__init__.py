"""What a gateway must stand: wrong, cut, silent and numerous clients, and kill -9.

| module | job |
|---|---|
| running | gateways and servers of the demo pair in processes of their own |
| hostile | requests that are wrong, oversize, slow, broken off or never sent, over raw sockets |
| from_document | requests made up from the OpenAPI document, by schemathesis |
| deaths | kill -9 of a gateway, and of one of its servers, under load |
"""
