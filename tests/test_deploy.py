"""What lies in deploy/ fits the programs: manifests against Kubernetes' schemas, names and ports against
each other, units against systemd where it is installed."""
import json
import pathlib
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build/release/bin"
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "deploy/kubernetes/examples").glob("*.yaml"))  # in place of some of them
CUSTOM = {"PodMonitor", "ScaledObject"}  # kinds of operators, which the schemas do not know
KUBERNETES = "1.31"


def documents(path):
    return [item for item in yaml.safe_load_all(path.read_text()) if item]


def everything():
    return [item for path in MANIFESTS for item in documents(path)]


def one(kind, name):
    found = [i for i in everything() if i["kind"] == kind and i["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} of them"
    return found[0]


def cluster():
    return yaml.safe_load(one("ConfigMap", "baton")["data"]["cluster.yaml"])


@pytest.mark.parametrize("path", MANIFESTS + EXAMPLES, ids=lambda path: path.name)
def test_manifests_are_valid(path):
    for item in documents(path):
        if item["kind"] in CUSTOM:
            assert item["spec"] and item["metadata"]["namespace"] == "baton"
        else:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)


def test_the_configuration_is_good(tmp_path):
    config = tmp_path / "cluster.yaml"
    config.write_text(one("ConfigMap", "baton")["data"]["cluster.yaml"])
    (tmp_path / "token").write_text("a-secret-for-this-test\n")
    done = subprocess.run(
        [BIN / "baton", "check", config, "--set", f"cluster.token_file={tmp_path / 'token'}",
         "--set", "kv.arena_mb=64"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_pods_and_pool_agree(role):
    pods = one("StatefulSet", role)
    pool = cluster()[role]["pool"]
    assert [entry["name"] for entry in pool] == [f"{role}-{i}" for i in range(len(pool))]
    assert pods["spec"]["replicas"] <= len(pool)
    scaled = one("ScaledObject", role)["spec"]
    assert scaled["maxReplicaCount"] == cluster()["pools"][role]["max"] == len(pool)
    assert scaled["minReplicaCount"] == cluster()["pools"][role]["min"]
    ports = {p["name"]: p["containerPort"]
             for p in pods["spec"]["template"]["spec"]["containers"][0]["ports"]}
    service = one("Service", pods["spec"]["serviceName"])
    for entry in pool:
        assert entry["advertise"] == \
            f"{entry['name']}.{service['metadata']['name']}.baton.svc:{ports['control']}"
        assert entry["admin_listen"].endswith(f":{ports['admin']}")


def test_nodes_dial_every_gateway():
    gateway = one("StatefulSet", "gateway")
    assert cluster()["cluster"]["gateways"] == \
        [f"gateway-{i}.gateway.baton.svc:7000" for i in range(gateway["spec"]["replicas"])]


def test_scaling_asks_for_metrics_that_exist():
    sources = "".join(p.read_text() for folder in ("gateway", "decode_node", "prefill_node", "node")
                      for p in (ROOT / folder).rglob("*.cpp"))
    asked = [trigger["metadata"]["query"] for item in everything() if item["kind"] == "ScaledObject"
             for trigger in item["spec"]["triggers"]]
    asked += [metric["external"]["metric"]["name"] for path in EXAMPLES for item in documents(path)
              for metric in item["spec"]["metrics"]]
    assert len(asked) == 4
    for name in re.findall(r"baton_\w+", " ".join(asked)):
        assert f'"{name}"' in sources, name


@pytest.mark.parametrize("unit", sorted((ROOT / "deploy/systemd").glob("*.service")),
                         ids=lambda unit: unit.name)
def test_units(unit, tmp_path):
    text = unit.read_text()
    program, arguments = re.search(r"^ExecStart=/usr/local/bin/(\S+) (.*)$", text, re.M).groups()
    known = subprocess.run([BIN / program, "--help"], capture_output=True, text=True, timeout=60)
    assert known.returncode == 0
    for option in re.findall(r"--[a-z-]+", arguments):
        assert option in known.stdout, f"{program} has no {option}"
    if shutil.which("systemd-analyze"):
        here = tmp_path / unit.name
        here.write_text(text.replace("/usr/local/bin", str(BIN)))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", here],
                              capture_output=True, text=True, timeout=60)
        assert unit.name not in done.stderr, done.stderr


def grafana():
    return json.loads((ROOT / "deploy/grafana/baton.json").read_text())


def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])] + \
        [item["query"]["query"] for item in dashboard["templating"]["list"] if item["type"] == "query"]


def test_grafana_asks_for_metrics_that_exist():
    page = (ROOT / "docs/metrics.md").read_text()
    known = {}
    for name, kind, labels in re.findall(r"^\| `([\w:]+)` \| (\w+) \| [^|]*\|[^|]*\| ([^|]*)\|", page, re.M):
        for ending in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            # `role` and `node` come with the scrape configuration.
            known[name + ending] = set(re.findall(r"`(\w+)`", labels)) | {"le", "role", "node"}
    asked = expressions(grafana())
    assert len(asked) > 20
    for expression in asked:
        names = re.findall(r"\b(?:baton|vllm)[_:]\w+", expression)
        assert names, expression
        for name in names:
            assert name in known, f"{name} in {expression}"
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression))
        for group in re.findall(r"by \(([^)]*)\)", expression):
            labels |= set(group.replace(" ", "").split(","))
        assert labels <= set().union(*(known[name] for name in names)), (expression, labels)


def test_grafana_has_the_panels_of_the_built_in_page():
    page = (ROOT / "gateway/dashboard/page.html").read_text()
    sections = [re.sub(r", last minute$", "", title) for title in re.findall(r"<h2[^>]*>([^<]+)</h2>", page)]
    dashboard = grafana()
    assert sections == [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for first, second in zip(dashboard["panels"], dashboard["panels"][1:]):
        a, b = first["gridPos"], second["gridPos"]
        assert b["y"] >= a["y"] and (b["y"] > a["y"] or b["x"] >= a["x"] + a["w"]), "panels overlap"


def test_grafana_speaks_promql(tmp_path):
    rules = [{"record": "a:b", "expr": expression.replace("$__rate_interval", "1m").replace("$__range", "1m")}
             for expression in expressions(grafana()) if not expression.startswith("label_values")]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": [
        {**rule, "record": f"a:b{i}"} for i, rule in enumerate(rules)]}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
