"""Target openvino: engines for a CPU, exported from the checkpoint in process.

| module | job |
|---|---|
| target | the target's interface to the build: settings, plan, export, verification |
| transformer | a checkpoint as a stateful OpenVINO model, saved |
| verify | the exported engine against transformers |
| memory | what a pair takes of its machine's memory, and whether there is so much |
| threads | how the machine's cores are divided |
| runtime | settings of the CPU plug-in, and the CPU features that they need |
"""
