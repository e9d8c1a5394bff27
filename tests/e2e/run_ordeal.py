"""The command line of ordeals.py; `tools/ordeal` sets up and calls it."""
import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ordeals  # noqa: E402


def overrides(pairs):
    """section.key=value as nested dictionaries; values are JSON where they can be."""
    config = {}
    for pair in pairs:
        path, _, text = pair.partition("=")
        *sections, key = path.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        try:
            place[key] = json.loads(text)
        except json.JSONDecodeError:
            place[key] = text
    return config


def main():
    parser = argparse.ArgumentParser(prog="tools/ordeal")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, options in {
            "kills": {"minutes": 3.0, "every": 3.0, "clients": 16, "seed": 1, "prefill": 2, "decode": 2},
            "cancels": {"count": 2000, "at_once": 8, "alone": 40, "seed": 1},
            "quiet": {"minutes": 10.0, "clients": 16, "seed": 1}}.items():
        command = commands.add_parser(name)
        for option, default in options.items():
            command.add_argument("--" + option.replace("_", "-"), type=type(default), default=default)
        command.add_argument("--set", action="append", default=[], dest="changes")
        command.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    run = getattr(ordeals, arguments.pop("command"))
    as_json, config = arguments.pop("json"), overrides(arguments.pop("changes"))
    folder = tempfile.mkdtemp(prefix="baton-ordeal-")
    figures = run(folder, config=config, progress=lambda line: print(line, file=sys.stderr, flush=True),
                  **arguments)
    for name, value in figures.items():
        if name != "faults":
            print(f"{name:28} {value}")
    for fault in figures["faults"]:
        print(f"FAULT: {fault}")
    if as_json:
        print(json.dumps(figures))
    print(f"logs: {folder}", file=sys.stderr)
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
