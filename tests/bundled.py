"""The bundled deployments that are for GPUs, read once for all who make a test of each."""

from tts.build.spec import bundled_deployments, load_deployment

BUNDLED = {name: load_deployment(name) for name in bundled_deployments()}
FOR_GPUS = [name for name, deployment in BUNDLED.items() if deployment.tensorrt]
