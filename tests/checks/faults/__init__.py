"""Single faults of a deployment and of all that is made of it: each has a finding of its own.

A kind of fault takes a `Site` and a random generator, damages one place, and says how. Where it
does not apply, as no GPU is named in a deployment for the CPU, it raises `NotHere`.
"""

from tests.checks.faults import (
    of_checkpoints,
    of_deployment,
    of_engines,
    of_manifests,
    of_repository,
)
from tests.checks.faults.site import Kind

KINDS: list[Kind] = [
    of_deployment.verifier_shorter_than_the_generator,
    of_deployment.verifier_budget,
    of_deployment.more_requests_than_run,
    of_deployment.strategy,
    of_deployment.host,
    of_deployment.ports,
    of_deployment.replicas_on_one_gpu,
    of_deployment.gpu_that_no_machine_has,
    of_deployment.host_cache,
    of_deployment.pool_beyond_the_gpu,
    of_deployment.checkpoints_exchanged,
    of_deployment.one_checkpoint_for_both,
    of_deployment.labels,
    of_deployment.verifier_format,
    of_checkpoints.chat_template,
    of_checkpoints.end_token,
    of_checkpoints.checkpoint_byte,
    of_checkpoints.checkpoint_file_kind,
    of_engines.engine_byte,
    of_engines.engine_file_kind,
    of_engines.engine_file_missing,
    of_engines.another_rank,
    of_engines.repository_file_kind,
    of_manifests.manifest_value,
    of_manifests.probe,
    *map(of_engines.in_repository, of_repository.KINDS),
]
