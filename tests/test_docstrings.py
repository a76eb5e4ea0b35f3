"""Names in backquotes of the docstrings: each is one that the code still has."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUOTED = re.compile(r"`([A-Za-z_][\w.]*\w)(?:\(\))?`")
FILE_NAME = re.compile(r"\.(js|json|html|yaml)$")
OF_OTHERS = {
    "AttentionSpec",  # vLLM
    "__future__",  # Python, as is the next
    "_getframe",
    "BetaStoppingCriteria",  # the code of the adaptive vote's paper
    "DecodeStream",  # tokenizers
    "energy",  # an extra of the package
    "parameters.temperature",  # a key of run.json
    "queue.SimpleQueue",
    "micro_batch_id",  # TensorRT-LLM's statistics, as is the next
    "nv_trt_llm_runtime_memory_metrics",
    "prepare_input",  # Skywork's reference code
    "tp1",  # examples of a group's name, as is the next
    "tp8",
    "tokenize_row",  # TRL's reference code
}


class Names:
    """Every name that the sources define or use, the members of classes and the modules' own."""

    def __init__(self):
        self.all = set(OF_OTHERS)
        self.members = defaultdict(set)
        self.bases = defaultdict(set)
        self.modules = defaultdict(set)

    def read(self, module, nodes):
        self.all.update(module.split("."))
        names = set(names_in(nodes))
        self.all |= names
        *_, package, own = ("", *module.split("."))
        self.modules[own] |= names
        self.modules[package].add(own)
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                self.members[node.name] |= set(names_in([*ast.walk(node)]))
                self.bases[node.name] |= {ast.unparse(base).split("[")[0] for base in node.bases}

    def has_member(self, name, member):
        """A class, or one of those above it, has the name; one above that is not ours may."""
        if name not in self.members:
            return name not in ("Protocol", "Generic", "NamedTuple", "")
        return member in self.members[name] or any(
            base != name and self.has_member(base, member)
            for base in self.bases[name] - {"Protocol", "Generic", "NamedTuple"}
        )

    def resolves(self, quoted):
        if quoted in self.all:
            return True
        *owners, name = quoted.split(".")
        if owners and owners[-1] in self.members:
            return self.has_member(owners[-1], name)
        if owners and owners[-1] in self.modules:
            return name in self.modules[owners[-1]]
        return all(part in self.all for part in quoted.split("."))


def names_in(nodes):
    docstrings = {id(node) for node in docstrings_of(nodes)}
    for node in nodes:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg() | ast.keyword(arg=str()):
                yield node.arg
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.alias():
                yield from node.name.split(".")
                yield node.asname or node.name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                # Keys, fields of the wire and flags are names too; sentences are none.
                if re.fullmatch(r"[\w.:/-]+", text):
                    yield text
                    yield from re.findall(r"[A-Za-z_]\w*", text)


def docstrings_of(nodes):
    """String constants that stand as statements: docstrings of definitions and of values."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def sources():
    for root in ("build", "engines", "triton_repo", "orchestrator"):
        for file in sorted((ROOT / root / "tts").rglob("*.py")):
            module = ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
            yield file, module.removesuffix(".__init__"), nodes_of(file.read_text("utf-8"))


def nodes_of(code):
    return [*ast.walk(ast.parse(code))]


def stale(files):
    names = Names()
    for _, module, nodes in files:
        names.read(module, nodes)
    return [
        f"{file}:{node.lineno} `{quoted}`"
        for file, _, nodes in files
        for node in docstrings_of(nodes)
        for quoted in QUOTED.findall(str(node.value))
        if not FILE_NAME.search(quoted) and not names.resolves(quoted.removesuffix(".py"))
    ]


def test_each_name_in_backquotes_is_one_of_the_code():
    assert stale(list(sources())) == []


def test_a_name_that_is_gone_is_noticed():
    """A function, a method of a class with a base, and a function of a module, each renamed."""
    code = '''
class Base:
    """`Base.grow` and `Base.shrink`, `leaf.prune` and `leaf.saw`, `plant()` and `sow()`."""
    def grow(self): ...
class Tree(Base):
    """`Tree.grow` and `Tree.shrink`."""
def plant(): ...
'''
    leaf = ("leaf.py", "garden.leaf", nodes_of("def prune(): ..."))
    gone = stale([("tree.py", "garden.tree", nodes_of(code)), leaf])
    assert [line.split()[-1] for line in gone] == [
        "`Base.shrink`", "`leaf.saw`", "`sow`", "`Tree.shrink`",
    ]  # fmt: skip
