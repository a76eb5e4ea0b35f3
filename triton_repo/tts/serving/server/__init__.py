"""The processes of servers: start, find, watch and stop them, and say why one did not start.

All have one life. What differs is a service's: the command line, and what log and answers mean.

| module | job |
|---|---|
| service | `Service`: what is started, found, watched and stopped as one server of a deployment |
| triton | the service of compiled engines |
| started | the services of started engines, and of the MPS daemon beside them |
| services | the services of a deployment, in the order in which they start |
| start | `start_server`: launch, wait until the models answer |
| loading, watchdog | what the engines of a starting server do; whether they get on |
| launch | one server process under its guard |
| lookup | `find_server`, `stop_server`, health: of the server that runs, whoever started it |
| state | what is known of a running server, shared through a file |
| supervisor | the one process that starts a server, or keeps it running |
| probe | over gRPC: whose models does Triton serve, and do they answer? |
| supervise | keeps servers running, here or in threads: starts one again when it died |
| locks | locks between processes; who uses a shared server, which ends with the last of them |
| triton_log | the log of Triton's start: why it failed, what it says of memory |
"""
