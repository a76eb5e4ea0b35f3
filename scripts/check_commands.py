"""Have each engine's own argument parser read the command lines of the bundled deployments.

    scripts/run check_commands vllm=PYTHON sglang=PYTHON trtllm-serve=PYTHON llama.cpp=llama-server
    scripts/run check_commands trtllm-serve=tests/build/standin/trtllm_serve.json

PYTHON is an interpreter in whose environment the engine's package can be imported; llama.cpp's
program itself is run; a JSON file has the options of a command as its source defines them. Every
started deployment is rendered for each of these engines, also where its file names another. With
`--record` the names of the options are written to build/tts/build/started/options.json, which
`tts lint` and the tests read.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click

from tts.base.errors import TtsError
from tts.build.spec import StartedTarget, bundled_deployments, load_deployment
from tts.build.started import engines
from tts.build.started.command import command_of
from tts.build.started.engines import ENGINES

RECORD = Path(engines.__file__).with_name("options.json")
_READ = """
import argparse, json, sys
{parser}
lines = json.load(sys.stdin)
for line in lines:
    parse(line)
print(json.dumps([version, sorted(names)]))
"""
_VLLM = """
import vllm
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:  # before 0.33
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
parser, version = make_arg_parser(FlexibleArgumentParser()), vllm.__version__
parse, names = parser.parse_args, {o for a in parser._actions for o in a.option_strings}
"""
_SGLANG = """
from sglang.srt.server_args import ServerArgs
from sglang.version import __version__ as version
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
parse, names = parser.parse_args, {o for a in parser._actions for o in a.option_strings}
"""
_TRTLLM = """
import tensorrt_llm
from tensorrt_llm.commands.serve import serve
version, names = tensorrt_llm.__version__, {o for p in serve.params for o in p.opts}
parse = lambda line: serve.make_context("serve", line)
"""
_KINDS: dict[str, type] = {"text": str, "int": int, "float": float, "flag": bool}
PARSERS: dict[StartedTarget, str] = {"vllm": _VLLM, "sglang": _SGLANG, "trtllm-serve": _TRTLLM}


def rendered(target: StartedTarget) -> list[tuple[str, tuple[str, ...]]]:
    """The arguments of every bundled engine as this kind starts it, with the deployment's name."""
    lines = []
    for name in bundled_deployments():
        deployment = load_deployment(name)
        for role, spec in deployment.started().items():
            changed = spec.model_copy(update={"target": target, "max_batch_size": 2})
            for each in (spec, changed) if spec.target == target else (changed,):
                deployed = deployment.model_copy(update={role: each, "deterministic": True})
                try:
                    words = command_of(deployed, role, 8000).argv
                except TtsError as error:  # a head that this engine does not have
                    print(f"{name}, {role} by {target}: {error.message}")
                    continue
                lines.append((f"{name}, {role}", words[len(ENGINES[target].program) :]))
    return lines


def recorded_command(file: Path) -> click.Command:
    """A command with the arguments and options that a file records of its definition."""
    record = json.loads(file.read_text(encoding="utf-8"))
    params: list[click.Parameter] = [click.Argument([name]) for name in record["arguments"]]
    for name, facts in record["options"].items():
        kind = click.Choice(facts["choices"]) if "choices" in facts else _KINDS[facts["type"]]
        names, multiple = [name, *facts.get("aliases", ())], facts.get("multiple", False)
        is_flag = kind is bool
        params.append(click.Option(names, type=kind, is_flag=is_flag, multiple=multiple))
    return click.Command("serve", params=params)


def read(target: StartedTarget, program: str) -> tuple[str, list[str]]:
    """The version and options of an engine, once it has read all lines; exits where it has not."""
    lines = rendered(target)
    if program.endswith(".json"):
        command = recorded_command(Path(program))
        for _, words in lines:
            command.make_context(target, list(words))
        version = json.loads(Path(program).read_text())["tensorrt_llm"]
        names = sorted(name for option in command.params for name in option.opts)
    elif target == "llama.cpp":
        answer = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
        heads = re.findall(r"^(?:--?[\w-]+(?:, *| |$) *)+", answer.stdout, re.MULTILINE)
        names = sorted({name for head in heads for name in re.findall(r"--?[\w-]+", head)})
        for _, words in lines:  # read in order, up to the last, which prints and ends
            answer = subprocess.run([program, *words, "--version"], capture_output=True, text=True)
            version = answer.stderr.partition("\n")[0]
            if answer.returncode:
                sys.exit(f"{program} {shlex.join(words)}: {version}")
    else:
        code = _READ.format(parser=PARSERS[target])
        answer = subprocess.run(
            [program, "-c", code],
            input=json.dumps([words for _, words in lines]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        version, names = json.loads(answer.stdout.splitlines()[-1])
    print(f"{target} {version}: {len(lines)} command lines read")
    return version, names


def main() -> None:
    """Check the engines that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engines", nargs="+", metavar="ENGINE=PROGRAM")
    parser.add_argument("--record", action="store_true", help="write the names of the options")
    arguments = parser.parse_args()
    options = json.loads(RECORD.read_text())
    for each in arguments.engines:
        target, _, program = each.partition("=")
        _, names = read(target, program)
        options[target] = " ".join(name for name in names if name.startswith("--"))
    if arguments.record:
        rows = [f" {json.dumps(name)}: {json.dumps(words)}" for name, words in options.items()]
        RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
