"""Engines that are servers of their own: what each is started with, from the deployment's plan.

| module | job |
|---|---|
| command | `command_of`: the command line and environment of a role's engine |
| memory | weights, KV cache, graphs and activations of both, in bytes |
| engines | what each can do, and its table of options, at a named version |
"""
