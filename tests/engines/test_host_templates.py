"""The model configurations say the same as tts.engines.wire."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tts.build import paths
from tts.build.spec import Deployment
from tts.engines import wire
from tts.serving.repository import model_configs
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


def test_the_generator_declares_the_tensors_of_the_contract(configs):
    config = configs[wire.GENERATOR]
    assert types(config.input) == wire.INPUTS | wire.HOST_INPUTS
    assert types(config.output) == wire.OUTPUTS | wire.ROW_OUTPUTS
    required = {t.name for t in config.input if not t.optional}
    assert required == {"input_lengths", "request_output_len"}
    scalars = {t.name for t in config.input if list(t.dims) == [1]}
    assert set(wire.INPUTS) - scalars == {
        "input_ids",
        "stop_words_list",
        "bad_words_list",
        "embedding_bias",
    }


def test_only_the_generator_is_decoupled(configs):
    assert configs[wire.GENERATOR].model_transaction_policy.decoupled
    assert not configs[wire.PRM].model_transaction_policy.decoupled


def test_the_verifier_is_asked_as_the_ensemble_of_other_targets_is(configs, pair):
    ensemble = model_configs._ensemble(pair)
    ours = configs[wire.PRM]

    def declared(side):
        return {t.name: (t.data_type, list(t.dims)) for t in side}

    assert declared(ours.input) == declared(ensemble.input)
    assert not any(tensor.optional for tensor in ours.input)
    rows = {name: each for name, each in declared(ours.output).items() if name in wire.ROW_OUTPUTS}
    assert declared(ours.output) == declared(ensemble.output) | rows
    assert types(ours.output) == wire.SCORE_OUTPUTS | wire.ROW_OUTPUTS
