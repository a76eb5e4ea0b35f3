"""Other people's programs beside ours, measured in turns.

| module | job |
|---|---|
| environments | the pinned peers, each in an environment of its own |
| process | a worker or a server: started, asked, halted while others are measured, ended |
| turns | what is measured in which order; one measurement, and the numbers of all rounds |
| searches | searches on the demo pair: search-and-learn, its_hub, and ours |
| servers | generation for an ordinary model: vLLM, llama.cpp, and ours |
| tables | the tables that are printed |
| workers/ | programs that the peers' interpreters run |
"""
