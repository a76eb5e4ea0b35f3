"""The stand-in of TensorRT-LLM has the names and parameters of the facts."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.engines.llmapi_standin import FACTS, SITE

from tts.build.llmapi.version import check_version


@pytest.fixture(scope="module")
def standin() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SITE))
        yield importlib.import_module("tensorrt_llm")
    del sys.modules["tensorrt_llm"]  # or others would find it installed


def test_request_output(standin: ModuleType):
    source = inspect.getsource(standin.RequestOutput.__init__)
    for name in FACTS["request_output"]:
        assert hasattr(standin.RequestOutput, name) or f"self.{name} =" in source, name


def test_methods_of_llm(standin: ModuleType):
    for name, parameters in FACTS["llm"].items():
        signature = inspect.signature(getattr(standin.LLM, name))
        assert list(signature.parameters)[1:] == parameters


def test_llm_refuses_what_it_does_not_know(standin: ModuleType):
    with pytest.raises(ValueError, match="invalid argument: max_tokens_in_paged_kv_cache"):
        standin.LLM("/nowhere", max_tokens_in_paged_kv_cache=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'runtime_top_k'"):
        standin.SamplingParams(runtime_top_k=1)


def test_its_version_is_one_that_is_served(standin: ModuleType):
    assert check_version(standin.__version__) is None
