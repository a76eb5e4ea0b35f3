"""The bundled deployments, read once for all who make a test of each."""

from tts.build.spec import bundled_deployments, load_deployment

BUNDLED = {name: load_deployment(name) for name in bundled_deployments()}
COMPILED = [name for name, deployment in BUNDLED.items() if not deployment.remotes()]
FOR_GPUS = [name for name, deployment in BUNDLED.items() if deployment.tensorrt]
TENSORRT = [name for name in FOR_GPUS if BUNDLED[name].target == "tensorrt"]
"""Those that Triton serves in NVIDIA's container."""
