"""Compile stage: the deployment spec, checkpoints, exports, manifests."""
