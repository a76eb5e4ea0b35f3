"""The Triton model repository of a deployment, and manifests to run it elsewhere.

| module | job |
|---|---|
| templates | which templates a deployment has, rendering one, and the modules that models carry |
| labels | which columns of the verifier's logits are its labels |
| digest | the digest by which clients recognise the deployment that a server serves |
| render | the repository: rendered, parsed back, put in place |
| manifests, gateway | docker compose and Kubernetes; what they say of the gateway |
"""
