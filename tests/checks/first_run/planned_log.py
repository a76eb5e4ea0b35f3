"""The log of a start in which everything is as planned, or as a test wants it."""

from collections.abc import Mapping

from tts.build.spec import Deployment, Role
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.memory_plan import MemoryPlan

MIB = 2**20


def size(number: float) -> str:
    """As TensorRT-LLM's memory counters write a size."""
    for unit in ("B", "KB", "MB"):
        if number < 1024:
            return f"{number:.2f} {unit}"
        number /= 1024
    return f"{number:.2f} GB"


def planned_log(
    deployment: Deployment,
    plan: MemoryPlan,
    *,
    cut: Mapping[Role, int] | None = None,
    transfer: int = MIB,
) -> list[str]:
    """Lines of every rank; `cut` takes blocks off pools, `transfer` is a buffer's bytes."""
    lines = []
    for gpu in plan.gpus:
        for place in gpu.ranks:
            spec, memory = deployment.engines()[place.role], place.memory
            block = spec.kv_cache.block_size
            blocks = -(-spec.kv_cache.tokens // block) - (cut or {}).get(place.role, 0)
            tokens = blocks * block
            kv = tokens * memory.kv_bytes_per_token
            lines += [
                f"Loaded engine size: {memory.weights // MIB} MiB",
                f"[MemUsageChange] Allocated {memory.activations / MIB:.2f} MiB for execution "
                "context memory.",
                f"[MemUsageChange] Allocated {size(memory.logits / 5)} GPU memory for runtime "
                "buffers.",
                f"[MemUsageChange] Allocated {size(memory.logits / 1.3)} GPU memory for decoder.",
                "Memory usage when calculating max tokens in paged kv cache: total: "
                f"{gpu.total / GIB:.2f} GiB, available: {(gpu.free + kv) / GIB:.2f} GiB",
                f"Max KV cache blocks per sequence: {-(-spec.max_seq_len // block)} [window size="
                f"{spec.max_seq_len}], tokens per block={block}, primary blocks={blocks}, "
                f"secondary blocks=0, max sequence length={spec.max_seq_len}",
                f"[MemUsageChange] Allocated {kv / GIB:.2f} GiB for max tokens in paged KV cache "
                f"({tokens}).",
                "CacheTransBufferManager: mMaxNumTokens:0, mRecvBufferCount:1, "
                f"mSendBufferCount:2,mTransferBufferSize:{transfer}, mPreAllocBufferSize:"
                f"{3 * transfer},mOnlyUseDynamicBuffer:0 mUseFabricMemory:0 mDataType:6",
            ]
    return [f"[TensorRT-LLM][INFO] {line}" for line in lines]
