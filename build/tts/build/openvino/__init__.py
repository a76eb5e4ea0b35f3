"""Target openvino: export, precision, engines for a CPU, and their comparison with transformers."""
