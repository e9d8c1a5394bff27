"""docs/metrics.md as the programs themselves tell it: every name that a gateway, a prefill and a decode node
with everything switched on export, with type, labels, unit and meaning."""
import re

HEAD = """# Metrics

Made from what the programs export; a test compares (`tests/e2e/test_metrics_page.py`). Each program serves them at
`http://ADMIN_LISTEN/metrics` in Prometheus' text format, the gateway also the dashboard at `/`. `baton rules` writes
alert rules over them, `deploy/grafana/baton.json` is a dashboard of them.

Names that begin with `vllm:` are vLLM's, for dashboards and scrapers made for it; the label `role` (gateway, prefill,
decode) tells who says it. End-to-end latencies are the gateway's alone: those of nodes do not add up. Scraped by the
configuration of `baton rules --scrape`, every series also has `role` and `node`. Label values are bounded: names of
models that nodes serve, of nodes, of keys and of tiers, and words of the programs. No text of requests is among them.

Histograms have the series `_bucket`, `_sum` and `_count`. Targets of `slo` are edges of the buckets, so that what keeps
them is counted exactly.

| name | type | by | unit | labels | meaning |
|---|---|---|---|---|---|
"""

UNITS = (("_seconds", "s"), ("_bytes_total", "bytes"), ("_bytes", "bytes"), ("_seconds_total", "s"),
         ("_tokens_total", "tokens"), ("_tokens", "tokens"), ("_blocks_total", "blocks"), ("_blocks", "blocks"),
         ("_perc", "share, 0 to 1"), ("_info", ""))


def unit(name):
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "count")


def families(text):
    """{name: (type, help, labels)} of a page of metrics."""
    found, samples = {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, help = line[7:].partition(" ")
            found.setdefault(name, {})["help"] = help
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split()
            found.setdefault(name, {})["kind"] = kind
        elif line and not line.startswith("#"):
            name, labels = re.match(r"([\w:]+)(?:\{(.*)\})? ", line).groups()
            samples.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    out = {}
    for name, entry in found.items():
        endings = ("_bucket", "_sum", "_count") if entry["kind"] == "histogram" else ("",)
        labels = set().union(*(samples.get(name + ending, set()) for ending in endings)) - {"le"}
        out[name] = (entry["kind"], entry["help"], tuple(sorted(labels)))
    return out


def page(texts):
    """`texts`: {who: page of metrics}."""
    rows = {}
    for who, text in texts.items():
        for name, (kind, help, labels) in families(text).items():
            row = rows.setdefault(name, {"kind": kind, "who": [], "labels": set(), "help": help})
            assert row["kind"] == kind, f"{name} has two kinds"
            row["who"].append(who)
            row["labels"].update(labels)
    lines = [f"| `{name}` | {row['kind']} | {', '.join(row['who'])} | {unit(name)} | "
             f"{', '.join(f'`{label}`' for label in sorted(row['labels']))} | {row['help'].replace('|', '/')} |"
             for name, row in sorted(rows.items())]
    return HEAD + "\n".join(lines) + "\n"
