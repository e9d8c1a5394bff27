#!/usr/bin/env python3
"""Checks which folder includes which: an edge that the table below does not allow fails.

    tools/check_includes.py [--root DIR]     prints each forbidden #include, exit status 1 if any
    tools/check_includes.py --self-test      checks the checker

The table is the design's: a folder uses only folders below it, so that each can be built, tested
and understood without those above. An entry is a folder or a path prefix.
"""

import argparse
import pathlib
import re
import sys
import tempfile

GATEWAY_ENGINE = ["engine/tokenizer", "engine/chat_template", "engine/grammar"]
NODE = ["node", "engine", "transfer", "common"]
PROGRAM_FOLDERS = ["prefill_node", "decode_node", "gateway"]

# What the files of a folder may include, besides their own folder.
ALLOWED = {
    "common": [],
    "kernels": ["common"],
    "engine": ["kernels", "common"],
    "transfer": ["common"],
    "node": NODE,
    "prefill_node": NODE,
    "decode_node": NODE,
    "any_node": ["prefill_node", "decode_node", "node"],
    "gateway": ["common", *GATEWAY_ENGINE],
    "cli": ["common", "kernels", "engine", "transfer", "node", *PROGRAM_FOLDERS, "bench"],
    "bench": ["common", "kernels", "engine", "transfer", "node", "prefill_node", "decode_node", "gateway", "cli"],
    "tests": ["common", "kernels", "engine", "transfer", "node", *PROGRAM_FOLDERS, "cli", "bench"],
}

# Narrower rules inside a folder: the layers of common, and the parts of engine that a gateway links.
ALLOWED_INSIDE = {
    "common/base": [],
    "common/types": ["common/base"],
    "common/exec": ["common/base"],
    "common/obs": ["common/base", "common/exec", "common/json"],
    "common/config": ["common/base"],
    "common/wire": ["common/base", "common/types"],
    "common/rpc": ["common/base", "common/exec", "common/obs", "common/types", "common/wire"],
    "engine/tokenizer": ["common"],
    "engine/chat_template": ["common", "engine/tokenizer"],
    "engine/grammar": ["common", "engine/tokenizer"],
    "node/host": [*NODE, "kernels"],  # the one place that chooses a backend
}

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def lies_in(path, folder):
    return path == folder or path.startswith(folder + "/")


def rule_for(path):
    """The narrowest folder with a rule, and what it may include."""
    for folder, allowed in ALLOWED_INSIDE.items():
        if lies_in(path, folder):
            return folder, allowed
    folder = path.split("/", 1)[0]
    return folder, ALLOWED.get(folder)


def problem_of(root, path, kind, target):
    """Why `path` may not include `target`; None when it may."""
    ours = target.split("/", 1)[0] in ALLOWED
    if kind == "<":
        return "our own headers are included with quotes" if ours and (root / target).exists() else None
    if not ours:
        return "quoted includes are of this tree and start at its root"
    if not (root / target).exists() and not target.endswith(".pb.h"):
        return "no such file"
    folder, allowed = rule_for(path)
    if allowed is None:
        return f"folder {folder} is not in the table of tools/check_includes.py"
    if lies_in(target, folder) or any(lies_in(target, entry) for entry in allowed):
        return None
    may = ", ".join(allowed) if allowed else "nothing else of ours"
    return f"{folder} may include {may}"


def check(root):
    problems = []
    files = 0
    for folder in ALLOWED:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    why = problem_of(root, path, match.group(1), match.group(2))
                    if why:
                        problems.append(f"{path}:{number}: includes {match.group(2)}: {why}")
    return files, problems


def self_test():
    cases = [  # file, include line, allowed
        ("common/base/a.h", '#include "common/base/b.h"', True),
        ("common/base/a.h", '#include "common/types/b.h"', False),
        ("common/rpc/a.h", '#include "engine/runner.h"', False),
        ("kernels/a.h", '#include "engine/runner.h"', False),
        ("engine/kv/a.h", '#include "transfer/transport.h"', False),
        ("engine/tokenizer/a.h", '#include "engine/runner.h"', False),
        ("transfer/a.cpp", '#include "engine/runner.h"', False),
        ("gateway/a.cpp", '#include "engine/tokenizer/tokenizer.h"', True),
        ("gateway/a.cpp", '#include "engine/runner.h"', False),
        ("gateway/a.cpp", '#include "transfer/transport.h"', False),
        ("prefill_node/a.cpp", '#include "node/client.h"', True),
        ("prefill_node/a.cpp", '#include "decode_node/service.h"', False),
        ("node/a.cpp", '#include "prefill_node/service.h"', False),
        ("bench/a.cpp", '#include "gateway/routing/router.h"', True),
        ("cli/a.cpp", '#include "gateway/routing/router.h"', True),
        ("cli/a.cpp", "#include <common/base/b.h>", False),
        ("cli/a.cpp", '#include "b.h"', False),
        ("cli/a.cpp", '  #  include   "common/base/missing.h"', False),
        ("cli/a.cpp", "#include <vector>", True),
    ]
    wrong = 0
    for file, line, allowed in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path in ["common/base/b.h", "common/types/b.h", "engine/runner.h", "engine/tokenizer/tokenizer.h",
                         "transfer/transport.h", "node/client.h", "decode_node/service.h", "prefill_node/service.h",
                         "gateway/routing/router.h", file]:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text("")
            (root / file).write_text(line + "\n")
            _, problems = check(root)
            if bool(problems) == allowed:
                wrong += 1
                print(f"self-test: {file} with {line}: {problems or 'nothing found'}")
    print(f"self-test: {len(cases) - wrong} of {len(cases)} cases right")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    files, problems = check(arguments.root)
    for problem in problems:
        print(problem)
    print(f"{files} files, {len(problems)} forbidden includes")
    return 1 if problems or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
