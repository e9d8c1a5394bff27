"""What lies in deploy/ fits the programs: manifests against Kubernetes' schemas, names and ports against
each other, units against systemd where it is installed."""
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


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
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
    assert one("ScaledObject", role)["spec"]["maxReplicaCount"] == len(pool)
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
    for item in everything():
        if item["kind"] == "ScaledObject":
            for trigger in item["spec"]["triggers"]:
                for name in re.findall(r"baton_\w+", trigger["metadata"]["query"]):
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
