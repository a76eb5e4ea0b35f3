"""Plays docker, nvidia-smi, the container's python3 and trtllm-build, by the facts of the contract.

TTS_STANDIN_STATE is a folder for what it notes; misbehaviour.json there tells it what to do wrong:
    {"at": STEP, "say": TEXT, "status": N}   fail in a step (check, convert, quantise, compile)
    {"at": STEP, "hang": true}               never end that step
    {"override": {PATH: VALUE}}              config.json says something else (null removes it)
    {"without": FILE}                        a file is not written
    {"capability": "8.0"}, {"smi": TEXT}     the GPUs; what nvidia-smi fails with
    {"isolated": TEXT}                       fail any step that has no network
"""

import csv
import json
import os
import signal
import sys
import time
from pathlib import Path

from build_arguments import FLAGS, check_build_arguments

STATE = Path(os.environ["TTS_STANDIN_STATE"])
SITE = os.environ["TTS_STANDIN_SITE"]
VALUED = {"--name", "--gpus", "--user", "--network", "--mount", "--env"}
SWITCHES = {"--rm", "--init"}


def wrong():
    file = STATE / "misbehaviour.json"
    return json.loads(file.read_text()) if file.exists() else {}


def misbehave(step):
    if wrong().get("at") != step:
        return
    if wrong().get("hang"):
        (STATE / "hanging").touch()
        time.sleep(60)
    print(wrong()["say"], flush=True)
    sys.exit(wrong().get("status", 1))


def note(tool, arguments):
    with (STATE / "calls.jsonl").open("a") as file:
        file.write(json.dumps([tool, *arguments]) + "\n")


def refuse(text):
    sys.exit(f"stand-in: {text}")


def docker(arguments):
    if arguments[0] == "kill":
        pid = int((STATE / f"{arguments[1]}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        return
    if arguments.pop(0) != "run":
        refuse("docker run or docker kill")
    options, mounts, environment = {}, [], {}
    while arguments[0].startswith("--"):
        option, _, value = arguments.pop(0).partition("=")
        if option in SWITCHES:
            options[option] = True
            continue
        value = value or arguments.pop(0)
        if option == "--mount":
            mounts.append(mount(value))
        elif option == "--env":
            name, _, environment[name] = value.partition("=")
        elif option in VALUED or option in ("--shm-size", "--ulimit"):
            options[option] = value
        else:
            refuse(f"docker has no option {option}")
    image, *command = arguments
    if not image.startswith("nvcr.io/nvidia/tritonserver:26.0") or "trtllm-python-py3" not in image:
        refuse(f"no image {image}")
    if SWITCHES - options.keys() or not options["--gpus"].strip('"').startswith("device="):
        refuse(f"options {options}")
    if "," in options["--gpus"] and not options["--gpus"].startswith('"'):
        refuse("docker reads --gpus as CSV")
    for word in command[1:]:
        if word.startswith("/") and not any(Path(word).is_relative_to(m) for m, _ in mounts):
            refuse(f"{word} is not mounted")
    for name in ("--output", "--output_dir", "--output_timing_cache"):
        if name in command and not any(
            Path(command[command.index(name) + 1]).is_relative_to(m)
            for m, writable in mounts
            if writable
        ):
            refuse(f"{name} is not writable")
    (STATE / f"{options['--name']}.pid").write_text(str(os.getpid()))
    if (text := wrong().get("isolated")) and options.get("--network") == "none":
        print(text, flush=True)
        sys.exit(1)
    offline = options.get("--network") == "none" or environment.get("HF_HUB_OFFLINE") == "1"
    if not offline and "--calibration-set" not in command:
        refuse("a step that downloads nothing is offline")
    os.environ.update(environment)
    run(*command)


def mount(value):

    (fields,) = csv.reader([value])
    given = dict(field.partition("=")[::2] for field in fields)
    if given["type"] != "bind" or given["src"] != given["dst"]:
        refuse(f"mount {value}")
    if not Path(given["src"]).exists():
        refuse(f"bind source path does not exist: {given['src']}")
    return Path(given["dst"]), "readonly" not in given


def nvidia_smi(arguments):
    if text := wrong().get("smi"):
        print(text)
        sys.exit(9)
    if not arguments[0].startswith("--query-gpu=index,name,memory.total,memory.used,"):
        refuse(f"nvidia-smi {arguments}")
    for index in range(4):
        capability = wrong().get("capability", "9.0")
        print(f"{index}, NVIDIA H100 80GB HBM3, 81559, 0, 590.44.01, {capability}")


def python3(arguments):
    """The container's Python: TensorRT-LLM can be imported there, our packages cannot."""
    step = "quantise" if "--calibration-set" in arguments else arguments[2]
    misbehave(step)
    os.environ["PYTHONPATH"] = SITE
    os.execv(sys.executable, [sys.executable, "-s", *arguments])


def trtllm_build(arguments):
    misbehave("compile")
    if problems := check_build_arguments(arguments):
        refuse(f"trtllm-build: {'; '.join(problems)}")
    given, name = {}, ""
    for word in arguments:
        if word.startswith("--"):
            name, given[word] = word, True
        else:
            given[name] = word
    values = {name: flag.get("default") for name, flag in FLAGS.items()} | given
    source, output = Path(given["--checkpoint_dir"]), Path(given["--output_dir"])
    pretrained = json.loads((source / "config.json").read_text())
    ranks = pretrained["mapping"]["world_size"]
    pretrained["logits_dtype"] = values["--logits_dtype"]
    config = {
        "version": "1.2.1",
        "pretrained_config": pretrained,
        "build_config": build_config(values, pretrained["quantization"]),
    }
    for path, value in wrong().get("override", {}).items():
        *parents, last = path.split(".")
        place = config
        for parent in parents:
            place = place[parent]
        if value is None and last not in ("quant_algo", "kv_cache_quant_algo"):
            del place[last]
        else:
            place[last] = value
    output.mkdir(exist_ok=True)
    files = {"config.json": json.dumps(config)}
    for rank in range(ranks):
        if not (source / f"rank{rank}.safetensors").is_file():
            refuse(f"rank{rank}.safetensors is missing")
        files[f"rank{rank}.engine"] = f"engine of rank {rank}"
    Path(given["--output_timing_cache"]).write_text("timings")
    for name, text in files.items():
        if name != wrong().get("without"):
            (output / name).write_text(text)
    print("[TRT-LLM] [I] Total time of building all engines: 00:00:01")


def build_config(values, quantization):
    """What the builder makes of its flags, with what it changes by itself."""

    def enabled(name):
        return values[name] == "enable"

    fp8 = quantization["quant_algo"] == "FP8"
    fp8_cache = quantization["kv_cache_quant_algo"] == "FP8"
    paged = enabled("--use_paged_context_fmha") and enabled("--context_fmha")
    if fp8_cache and not fp8:
        paged = False
    batch, length = int(values["--max_batch_size"]), int(values["--max_seq_len"])
    return {
        "max_batch_size": batch,
        "max_input_len": min(int(values["--max_input_len"]), length),
        "max_seq_len": length,
        "max_beam_width": int(values["--max_beam_width"]),
        "max_num_tokens": min(int(values["--max_num_tokens"]), batch * length),
        "kv_cache_type": values["--kv_cache_type"].upper(),
        "gather_generation_logits": bool(values["--gather_generation_logits"]),
        "plugin_config": {
            "gpt_attention_plugin": values["--gpt_attention_plugin"],
            "tokens_per_block": int(values["--tokens_per_block"]),
            "context_fmha": enabled("--context_fmha"),
            "use_paged_context_fmha": paged,
            "use_fp8_context_fmha": paged and fp8 and fp8_cache,
            "remove_input_padding": enabled("--remove_input_padding"),
        },
    }


def run(tool, *arguments):
    """Play one of the tools; docker plays what it runs in its own place."""
    note(tool, arguments)
    TOOLS[tool](list(arguments))


TOOLS = {
    "docker": docker,
    "nvidia-smi": nvidia_smi,
    "python3": python3,
    "trtllm-build": trtllm_build,
}
