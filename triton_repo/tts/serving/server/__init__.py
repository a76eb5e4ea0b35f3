"""The processes of servers: start, find, watch and stop them, and say why one did not start.

All have one life. What differs is a service's: the command line, and what log and answers mean.

| module | job |
|---|---|
| service | `Service`: what is started, found, watched and stopped as one server of a deployment |
| triton | the service of compiled engines |
| started | those of started engines, of the MPS daemon beside them, and all of a deployment |
| start | `start_server`: launch, wait until the models answer, unless nothing gets on |
| launch | one server process under its guard |
| lookup | `find_server`, `stop_server`, health: of the server that runs, whoever started it |
| state | what is known of a running server, shared through a file |
| probe | over gRPC: whose models does Triton serve, and do they answer? |
| supervise | keeps servers running, here or in threads: starts one again when it died |
| locks | locks between processes: who starts a server, and who uses a shared one |
| triton_log | the log of a start: how far it is, why it failed, what it says of memory |
"""
