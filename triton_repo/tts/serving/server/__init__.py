"""The processes of a server: start, find, watch and stop it, and say why it did not start.

| module | job |
|---|---|
| start | `start_server`: render, launch, wait until both models answer |
| loading | what the engines of a starting server do, and whether they get on |
| launch | one tritonserver under its guard |
| lookup | `find_server`, `stop_server`: the server that runs, whichever process started it |
| state | what is known of a running server, shared through a file; how one ended, in one wording |
| probe | over gRPC: whose models does it serve, and do they answer? |
| supervise | keeps a server running, here or in a thread: starts it again when it died |
| supervisor | which process does that, or starts it, if any |
| users | who uses a shared server, which ends with the last of them |
| locks | locks between processes: files that the kernel locks |
| health | notices when a server or one of its processes dies |
| triton_log | the log of a start: why it failed, what it says of memory |
| start_failures | known reasons, with what to do |
"""
