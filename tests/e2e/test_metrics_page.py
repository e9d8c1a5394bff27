"""docs/metrics.md is what the programs export."""
import hashlib
import re
import urllib.request

from collector import Collector
from harness import ROOT, Cluster, words
from metrics_page import page

KEY = "sk-metrics-page"


class Keyed(Cluster):
    def connection(self, timeout=300):
        made = super().connection(timeout)
        plain = made.request
        made.request = lambda method, path, body=None, headers=None: plain(
            method, path, body, {**(headers or {}), "Authorization": f"Bearer {KEY}"})
        return made


def test_the_page_is_current(tmp_path):
    # All that makes further metrics is switched on and has happened once.
    with Collector() as collector:
        config = {"kv": {"file_tier": str(tmp_path), "file_tier_mb": 64},
                  "gateway": {"tracing": {"endpoint": collector.endpoint},
                              "keys": [{"name": "k", "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
                                        "admin": True}]}}
        with Keyed(tmp_path / "cluster", config=config) as cluster:
            cluster.complete(words(60), 8)
            texts = {who: urllib.request.urlopen(f"http://{cluster.admin(name)}/metrics").read().decode()
                     for who, name in (("gateway", "gateway"), ("prefill", "prefill-0"), ("decode", "decode-0"))}
    written = ROOT / "build" / "metrics.md"
    written.write_text(page(texts))
    assert (ROOT / "docs" / "metrics.md").read_text() == written.read_text(), \
        "docs/metrics.md is behind the programs: look at the difference, then cp build/metrics.md docs/metrics.md"


def test_every_name_of_the_sources_is_on_the_page():
    page = (ROOT / "docs" / "metrics.md").read_text()
    sources = "".join(path.read_text() for folder in ("common/obs", "gateway", "node", "prefill_node", "decode_node")
                      for path in sorted((ROOT / folder).rglob("*.cpp")))
    # The first argument of a registration: a name, then its help.
    names = set(re.findall(r'"((?:baton_|vllm:)\w+)",\s*"[A-Z1]', sources))
    assert len(names) > 60
    for name in names:
        assert f"`{name}`" in page, name
