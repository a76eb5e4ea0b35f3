"""The Triton model repository of a deployment, and the manifests to run it elsewhere."""
