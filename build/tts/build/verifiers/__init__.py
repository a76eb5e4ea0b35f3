"""How verifiers are asked, as token ids, and what they judge with.

| module | job |
|---|---|
| dialogue | the interface of a dialogue, and the one of a deployment; ids of labels |
| running_text | formats rlhflow, math-shepherd, qwen2.5-math-prm and custom |
| lines, untrained | formats skywork-o1-prm; prompted, graded and likelihood |
| critique | format critique: how a model that writes is asked, and its verdict read |
"""
