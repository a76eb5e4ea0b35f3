"""Compile stage: from a deployment file and two checkpoints to two engines.

| module | job |
|---|---|
| spec, yaml_text, deployment_edit | the deployment file: read and validated; numbers set in it |
| resolve, hub_tokenizer | a tokenizer from the hub |
| checkpoint, checkpoint_files, model_config, weights | a Hugging Face checkpoint |
| tokenizer, token_texts | its tokenizer; what each token spells |
| verifiers/ | a verifier's dialogue as token ids; what it judges with |
| inputs | what a role is made from (shape, weights, tokenizer, dialogue), each opened once |
| builder | `build_engines`: only what has changed, complete or not at all |
| build_plan | what an engine will be, and checks before the build |
| targets | the interface of a target; openvino/ and tensorrt/ are the two |
| draft/ | the text of a new deployment file |
| manifest | the JSON files beside an engine: what it is, what it was made from |
| staging | one builder at a time; folders that appear complete or not at all |
| chat_template | rendering a chat template, in a process with limits |
| sandbox/ | programs that execute what a model wrote |
| worker_process | a process with limits: the parent's handle, and what runs inside |
| owner | what only the process that opened it may use, and no fork of it |
| tokenizer_check, tokenizer_worker | trying a tokenizer.json, in a process with limits |
| machine_limits | the cores and the memory that this process may use |
| nvidia | the NVIDIA GPUs of this machine |
| private | folders that only their owner may enter |
| shown_text | what a terminal shows |
| user_paths | what is at a path that a user names |
| extras | how what is missing of an extra is installed |
| paths, input_files, marks | where files are; reading what strangers wrote; what has been checked |
| errors | every error that a user may see |
| server_kinds | the kinds of server of a deployment |
"""

import sys
from typing import Any, cast

# OpenVINO's Python package keeps an id in the home folder and reports usage if it finds this
# module, already when it is imported. A toolkit must not do that to its users: without the module
# OpenVINO takes its own stub.
cast(Any, sys.modules).setdefault("openvino_telemetry", None)
