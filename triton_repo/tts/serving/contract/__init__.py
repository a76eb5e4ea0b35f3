"""What TensorRT-LLM's Triton backend expects of a model repository.

| module | job |
|---|---|
| facts | the contract's data (*.json): tensors, parameters, rules of a launch |
"""
