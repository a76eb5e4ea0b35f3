"""The stand-in of TensorRT-LLM has the names and parameters of the facts."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.engines.llmapi_standin import FACTS, SITE


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
