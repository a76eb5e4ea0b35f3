"""The Triton model repository of a deployment, and manifests to run it elsewhere.

| module | job |
|---|---|
| model_configs | the configuration of each model, as data: labels and grammars, too |
| digest | the digest by which clients recognise the deployment that a server serves |
| render | the repository: rendered and put in place |
| check | findings: where a repository is not as rendered now, why it matters, how to fix it |
| manifests, engine_manifests | docker compose and Kubernetes, of compiled and of started engines |
| gateway | what both say of the gateway |
"""
