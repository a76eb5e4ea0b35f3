"""The strategies by name, and whose parameter wins.

| module | job |
|---|---|
| strategy | `Strategy`: a search with a name, its parameters, and how completions vote |
| catalog | the built-in strategies and those of other packages; finding one by name |
| names | the built-in names for help texts: importing it costs nothing |
| parameters | values from the caller, the deployment, the strategy's defaults |
"""
