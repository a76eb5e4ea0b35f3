"""The Triton model repository of a deployment, and manifests to run it elsewhere.

| module | job |
|---|---|
| model_configs | the configuration of each model, as data |
| templates | rendering a template; the code of models, and the modules that they carry |
| labels | which columns of the verifier's logits are its labels |
| digest | the digest by which clients recognise the deployment that a server serves |
| render | the repository: rendered and put in place |
| check | findings: where a repository is not as rendered now, why it matters, how to fix it |
| manifests, gateway | docker compose and Kubernetes; what they say of the gateway |
"""
