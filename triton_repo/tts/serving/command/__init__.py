"""The command line of a server, here or in a container, and what it runs in.

| module | job |
|---|---|
| tritonserver | finds a tritonserver: on PATH, in the package nvidia-pytriton, in a container |
| server_command | the command line of Triton, and of a started engine |
| ports | the addresses that it listens on |
| environment | backend folder and Python interpreter of a server's models |
| guard | the process that stops a server when its parent is gone; also a script |
"""
