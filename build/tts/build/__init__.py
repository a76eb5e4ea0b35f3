"""Compile stage: from a deployment file and two checkpoints to two engines.

| module | job |
|---|---|
| spec, deployment_edit | the deployment file: read and validated; numbers set in it |
| resolve | a tokenizer from the hub |
| checkpoint, checkpoint_files, model_config, weights | a Hugging Face checkpoint; known models |
| tokenizer, token_texts | its tokenizer; what each token spells |
| verifiers/, verifier_heads | a verifier's dialogue as token ids; heads of its own |
| inputs | what a role is made from, each part opened once; a verifier's identity |
| builder | `build_engines`: only what has changed, complete or not at all; a target's interface |
| build_plan | what an engine will be, and checks before the build |
| openvino/, tensorrt/, started/ | the targets that are compiled, and the engines that are started |
| failures | what the log of a failed build or start means |
| draft/ | the text of a new deployment file |
| manifest | the JSON files beside an engine: what it is, what it was made from |
| chat_template | rendering a chat template, in a process with limits |
| sandbox/ | programs that execute what a model wrote |
| tokenizer_check | trying a tokenizer.json, in a process with limits |
| nvidia | the NVIDIA GPUs of this machine |
"""
