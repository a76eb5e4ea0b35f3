"""Engines in process: those that Triton runs, and those that only take time.

    Triton ─> triton_model ─> engine_thread ─> engine_client ─> engine_process ─> engine
                                       a session ─> engine_client ─> engine_process ─> engine

| module | job |
|---|---|
| wire | names, types and layouts of the tensors, shared by client and server |
| triton_model | the Python model of an engine that Triton runs |
| request_tensors | from tensors to a validated request |
| generate_request | a request and the limits that it must keep; where its output ends |
| loading | what an engine that loads is doing, as lines of the log |
| engine_client | an engine in a process of its own, as an event loop sees it |
| engine_thread | its client in a thread of a Triton model; asks whether clients have gone |
| opening | what the engines of a deployment are opened with |
| engine_messages | what the two processes tell each other, as bytes |
| engine_process | the process of an engine |
| engine | in-flight batching, in one loop |
| admission | which requests start, by KV blocks and slots; pure |
| prefix_cache | what the pipeline's prefix cache holds, and which requests must wait for it; pure |
| pipeline | OpenVINO GenAI's continuous-batching pipeline, and one request inside it |
| memory | whether memory ran short; giving back what is mapped without need |
| responses | from tokens to output tensors |
| statistics | what each iteration did: data, TensorRT-LLM's metrics, a log written and followed |
| simulated | engines on a GPU that only take (virtual) time |
"""
