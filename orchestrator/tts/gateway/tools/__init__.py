"""Calls of tools: how a prompt describes tools, and how an answer calls one. Pure.

| module | job |
|---|---|
| forms | the forms of calls that chat templates know, our own, and the schema of a forced call |
| conversation | chats with tools as messages for a template |
| parser | calls in the text of a sample, while it comes |
"""
