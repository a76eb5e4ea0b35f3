"""The model configurations say the same as tts.engines.wire."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tts.build import paths
from tts.build.spec import Deployment
from tts.engines import wire
from tts.serving.repository.render import render_repository


@pytest.fixture(scope="module")
def configs(pair: Deployment):
    folder = render_repository(pair)
    assert folder == paths.repository_dir(pair.name)
    return {
        file.parent.name: text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())
        for file in folder.glob("*/config.pbtxt")
    }


def types(tensors) -> dict[str, str]:
    names = {"BYTES": "TYPE_STRING"}
    back = {names.get(kind, f"TYPE_{kind}"): kind for kind in wire.DTYPES}
    return {t.name: back[model_config_pb2.DataType.Name(t.data_type)] for t in tensors}


@pytest.mark.parametrize("model", [wire.GENERATOR, wire.PRM_ENGINE])
def test_engines_declare_the_tensors_of_the_contract(configs, model):
    assert types(configs[model].input) == wire.INPUTS
    assert types(configs[model].output) == wire.OUTPUTS | wire.ROW_OUTPUTS
    required = {t.name for t in configs[model].input if not t.optional}
    assert required == {"input_lengths", "request_output_len"}
    scalars = {t.name for t in configs[model].input if list(t.dims) == [1]}
    assert set(wire.INPUTS) - scalars == {
        "input_ids",
        "stop_words_list",
        "bad_words_list",
        "embedding_bias",
    }


def test_only_the_generator_is_decoupled(configs):
    assert configs[wire.GENERATOR].model_transaction_policy.decoupled
    assert not configs[wire.PRM_ENGINE].model_transaction_policy.decoupled


def test_the_ensemble_leads_from_the_engine_to_the_score(configs):
    prm = configs[wire.PRM]
    assert types(prm.output) == types(configs[wire.PRM_SCORE].output) == wire.SCORE_OUTPUTS
    assert [s.model_name for s in prm.ensemble_scheduling.step] == [wire.PRM_ENGINE, wire.PRM_SCORE]
    # TensorRT-LLM refuses a request that does not ask for both of these
    assert {"output_ids", "sequence_length"} <= set(prm.ensemble_scheduling.step[0].output_map)
