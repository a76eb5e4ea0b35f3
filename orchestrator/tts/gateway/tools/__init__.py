"""Calls of tools: how a prompt describes tools, and how an answer calls one. Pure.

| module | job |
|---|---|
| forms | the forms of calls that chat templates know, and one of our own for the others |
| conversation | chats with tools as messages for a template |
| parser | calls in the text of a sample, while it comes |
| forced | the schema of an output that must call a tool |
| votes | which of several candidates is the answer |
"""
