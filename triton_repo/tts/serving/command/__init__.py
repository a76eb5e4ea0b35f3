"""The command line of a server, here or in a container, and what it runs in.

| module | job |
|---|---|
| tritonserver | finds a tritonserver: on PATH, or inside the package nvidia-pytriton |
| container | NVIDIA's container through docker |
| server_command | the command line of Triton for a deployment |
| engine_command | the command line of a started engine, and where its program is |
| ports | the addresses that it listens on |
| environment | backend folder and Python interpreter of a server's models |
| guard | the process that stops a server when its parent is gone; also a script |
"""
