"""The documents that commands print with `--json`: a type for each, and how it is made.

| module | documents of |
|---|---|
| runs | `tts solve`, `bench`, `report` and `runs` |
| deployments | `tts plan`, `lint`, `doctor`, `tune` and `simulate` |
| gateway | `tts gateway requests`, `keys list` and `usage` |
| index | all of them by command, for the reference page and the tests |

Those of `tts list` and of errors are with the command (`listing`) and in `json_output`.

Fields are only added: programs read them. Sizes and times have their unit in their name.
"""
