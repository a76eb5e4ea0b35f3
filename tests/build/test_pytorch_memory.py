"""Device memory of TensorRT-LLM's PyTorch backend."""

from hypothesis import given
from hypothesis import strategies as st
from tests.build.planned_pair import generator, verifier

from tts.build.spec import VerifierSpec
from tts.build.tensorrt import engine_memory, pytorch_memory
from tts.build.tensorrt.engine_memory import COMMUNICATION
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.model_shape import shape_of
from tts.build.tensorrt.pytorch_memory import CONTEXT, CUDA_GRAPH, WORKSPACE, graph_sizes


@given(st.integers(1, 4096))
def test_graphs_are_recorded_for_few_sizes_and_for_the_largest(largest):
    sizes = graph_sizes(largest)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, largest)
    assert len(sizes) <= 21 + largest // 64


def test_graph_sizes_by_hand():
    assert graph_sizes(1) == [1]
    assert graph_sizes(20) == [1, 2, 4, 8, 16, 20]
    assert graph_sizes(256)[-3:] == [128, 192, 256]


def test_weights_and_cache_are_those_of_the_compiled_engine():
    for spec in (generator(), verifier(tensorrt={"tensor_parallel": 2, "pipeline_parallel": 2})):
        shape = shape_of(spec.checkpoint)
        compiled = engine_memory.ranks_of(shape, spec)
        loaded = pytorch_memory.ranks_of(shape, spec)
        for before, after in zip(compiled, loaded, strict=True):
            assert after.weights == before.weights
            assert after.kv_bytes_per_token == before.kv_bytes_per_token
            assert bool(after.logits) == bool(before.logits)


def test_a_generator_pays_for_its_graphs_and_a_verifier_has_none():
    small, large = (
        pytorch_memory.ranks_of(shape_of(spec.checkpoint), spec)[0].workspaces
        for spec in (generator(max_batch_size=8), generator(max_batch_size=512))
    )
    assert large - small == (len(graph_sizes(512)) - len(graph_sizes(8))) * CUDA_GRAPH
    (rank,) = pytorch_memory.ranks_of(shape_of(verifier().checkpoint), verifier())
    assert rank.workspaces < 2 * GIB


def test_every_process_that_imports_the_package_has_a_context():
    def contexts(spec):
        graphs = 0 if isinstance(spec, VerifierSpec) else len(graph_sizes(spec.max_batch_size))
        fixed = WORKSPACE + COMMUNICATION * (spec.placement.ranks > 1) + CUDA_GRAPH * graphs
        ranks = pytorch_memory.ranks_of(shape_of(spec.checkpoint), spec)
        return [(rank.workspaces - fixed) / CONTEXT for rank in ranks]

    two = {"tensor_parallel": 2}
    assert (contexts(generator()), contexts(verifier())) == ([2], [1])
    assert contexts(generator(tensorrt=two)) == contexts(verifier(tensorrt=two)) == [2, 1]
