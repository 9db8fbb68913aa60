#!/usr/bin/env python3
"""Lists the flags of `vllm serve` by release: makes vllm/flags.txt.

    python3 vllm/flags.py SOURCE... > vllm/flags.txt

A SOURCE is VERSION=FOLDER, FOLDER holding vLLM's package (an unpacked source
archive, or site-packages); without any, the vLLM that this Python has installed.
The source text is parsed, never run: neither a GPU nor PyTorch is needed. Flags are
the names given to add_argument, and the fields of the classes that make flags of
their fields. One line a flag: name, first and last release ("-": before the first,
or still there), kind (switch: no value; list: several values; value), short names.
"""
import ast
import pathlib
import re
import sys

# Files below the package that add flags of `vllm serve`, over all releases.
FILES = ["engine/arg_utils.py", "entrypoints/openai/cli_args.py", "entrypoints/common/cli_args.py", "entrypoints/cli/serve.py",
         "entrypoints/openai/api_server.py", "entrypoints/utils.py"]
FIELDS = {"FrontendArgs", "BaseFrontendArgs"}  # classes whose every field is a flag
HINTS = {"EngineArgs", "AsyncEngineArgs"} | FIELDS  # classes that say what type a flag has


def kind_of(annotation):
    words = set(re.findall(r"\w+", annotation))
    if "bool" in words and not words & {"str", "dict", "list"}:
        return "switch"
    return "list" if words & {"list", "List", "Sequence"} and "dict" not in words else "value"


def flags_of(package):
    found, types = {}, {}
    for name in FILES:
        path = package / name
        if not path.exists():
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in HINTS:
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        types[field.target.id] = kind_of(ast.unparse(field.annotation))
                        if node.name in FIELDS:
                            found.setdefault(field.target.id, set())
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
                continue
            words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            long = [w[2:].replace("-", "_") for w in words if w.startswith("--")]
            short = {w for w in words if re.match(r"-[^-]", w)}
            action = next((ast.unparse(k.value) for k in node.keywords if k.arg == "action"), "")
            for flag in long:
                found.setdefault(flag, set()).update(short)
                if "store_true" in action or "store_false" in action or "BooleanOptional" in action:
                    types[flag] = "switch"
    return {flag: (types.get(flag, "value"), sorted(short)) for flag, short in found.items()}


def installed():
    import importlib.metadata
    version = importlib.metadata.version("vllm")
    return [f"{version}={importlib.metadata.distribution('vllm').locate_file('')}"]


def main():
    releases = []
    for source in sys.argv[1:] or installed():
        version, folder = source.split("=", 1)
        package = pathlib.Path(folder) / "vllm"
        flags = flags_of(package)
        if len(flags) < 50:
            sys.exit(f"{source}: got {len(flags)} flags, want vLLM's package in the folder")
        releases.append((tuple(int(n) for n in version.split(".")[:2]), version, flags))
    releases.sort(key=lambda r: r[0])
    print("# Flags of `vllm serve`, read from the source of the releases below by vllm/flags.py.")
    print("# name, first and last release (-: before the first, or still there), kind, short names")
    print("releases", *(version for _, version, _ in releases))
    for name in sorted({f for _, _, flags in releases for f in flags}):
        having = [r for r in releases if name in r[2]]
        first = "-" if having[0] is releases[0] else "%d.%d" % having[0][0]
        last = "-" if having[-1] is releases[-1] else "%d.%d" % having[-1][0]
        kind, _ = having[-1][2][name]
        short = sorted({s for _, _, flags in having for s in flags[name][1]})
        print(name, first, last, kind, *short)


main()
