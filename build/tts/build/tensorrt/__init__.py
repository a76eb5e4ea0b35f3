"""The TensorRT-LLM target: what is planned, built and checked for NVIDIA GPUs."""
