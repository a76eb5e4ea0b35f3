"""The strategies by name, and whose parameter wins.

| module | job |
|---|---|
| strategy | `Strategy`: a search with a name, its parameters, and how the answer is chosen |
| catalog | the built-in strategies; finding one by name, plug-ins included |
| auto | parameters of the compute-optimal choice, and its policy's file |
| plugins | strategies of other packages, by entry points |
| names | the built-in names for help texts: importing it costs nothing |
| parameters | what is given, what the deployment says, what a strategy does by itself |
"""
