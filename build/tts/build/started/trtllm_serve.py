"""trtllm-serve: its options, as tensorrt_llm/commands/serve.py has them."""

from __future__ import annotations

from .engine import Engine, Options, Start


def _options(start: Start) -> Options:
    spec = start.spec
    return {
        "--host": start.host,
        "--port": start.port,
        "--backend": "pytorch",
        "--tp_size": spec.tensor_parallel,
        "--max_seq_len": spec.max_seq_len,
        "--max_batch_size": start.sequences,
        "--max_num_tokens": start.tokens,
        "--enable_chunked_prefill": True,
        # a part of what is free once the weights are loaded: no option has tokens or bytes
        "--free_gpu_memory_fraction": start.budget.free_share,
    }


ENGINE = Engine(
    target="trtllm-serve",
    version="1.3.0rc25",
    labels_from="1.3.0rc22",  # a request's bias may be shorter before (pull request 13518)
    facts="tensorrt_llm/commands/serve.py: what is used is in the 1.2 line (00209af1) and in 1.3",
    program=("trtllm-serve", "serve"),
    image="nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc25",
    install="docker pull nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc25, and container: in the file",
    positional=lambda start: (str(start.spec.checkpoint),),
    options=_options,
    # both names of the switch of its reports of use (usage/config.py of later versions)
    environment=lambda _: {"TRTLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
    block=32,
    context=1.2,  # the most that was reported: pull request 15632
    graph=200 * 10**6,  # "can use up to 200 MB": TorchLlmArgs.cuda_graph_config
    graphs=lambda sequences: sum(
        size <= sequences
        for size in {1, 2, 4, *range(8, 129, 8), *range(192, sequences + 1, 64), sequences}
    ),
)
