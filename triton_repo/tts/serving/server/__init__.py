"""The processes of a server: start, find, watch and stop it, and say why it did not start.

| module | job |
|---|---|
| start | `start_server`: render, launch, wait until both models answer |
| loading | what the engines of a starting server do, and whether they get on |
| launch | one tritonserver under its guard |
| lookup | `find_server`, `stop_server`, health: of the server that runs, whoever started it |
| state | what is known of a running server, shared through a file; who keeps it running |
| probe | over gRPC: whose models does it serve, and do they answer? |
| supervise | keeps a server running, here or in a thread: starts it again when it died |
| locks | locks between processes; who uses a shared server, which ends with the last of them |
| triton_log | the log of a start: why it failed, what it says of memory |
| start_failures | known reasons, with what to do |
"""
