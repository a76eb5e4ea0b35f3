"""Compile stage: from a deployment file and two checkpoints to two engines.

| module | job |
|---|---|
| spec, deployment_edit | the deployment file: read and validated; numbers set in it |
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
| chat_template | rendering a chat template, in a process with limits |
| sandbox/ | programs that execute what a model wrote |
| tokenizer_check | trying a tokenizer.json, in a process with limits |
| nvidia | the NVIDIA GPUs of this machine |
"""
