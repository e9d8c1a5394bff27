"""Faults from outside, real Prometheus, real Alertmanager: each phase's fault pages the people of that
phase, nobody else, and the page ends with the fault. Windows are sped up 60 times."""
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
import urllib.request

import harness
import pytest
from harness import BIN, Cluster, Process, wait_for
from hosts import Hosts, inside, run

SPEED_UP = 60
PHASES = ("prefill", "transfer", "decode", "gateway")
LIMIT = 120  # for a page to come or to end


class Webhook:
    """Collects what Alertmanager sends: the names of firing pages by phase."""

    def __init__(self, address):
        self.firing = {phase: set() for phase in PHASES}
        self.ever = {phase: set() for phase in PHASES}
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                phase = self.path.strip("/")
                for alert in body["alerts"]:
                    if alert["labels"]["severity"] != "page":
                        continue
                    name = alert["labels"]["alertname"]
                    if alert["status"] == "firing":
                        hook.firing[phase].add(name)
                        hook.ever[phase].add(name)
                    else:
                        hook.firing[phase].discard(name)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(address, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def forget(self):
        self.ever = {phase: set(names) for phase, names in self.firing.items()}

    def phases(self):
        return {phase for phase, names in self.ever.items() if names}

    def quiet(self):
        return not any(self.firing.values())


class Load:
    """A few clients that ask again and again; a failed request is asked anew."""

    def __init__(self, cluster, clients=3):
        self.cluster, self.stopped, self.finished = cluster, threading.Event(), 0
        self.threads = [threading.Thread(target=self.ask, args=(i,), daemon=True)
                        for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, client):
        turn = 0
        while not self.stopped.is_set():
            turn += 1
            try:
                for _ in self.cluster.stream(harness.words(150, seed=client * 100000 + turn), 16):
                    pass
                self.finished += 1
            except (OSError, http.client.HTTPException, harness.HttpError):
                self.stopped.wait(0.2)

    def stop(self):
        self.stopped.set()


class SlowProcess:
    """The process runs `share` of the time: by a control group where there is one, else by signals."""

    def __init__(self, pid, share):
        self.pid, self.share, self.group = pid, share, None

    def __enter__(self):
        parent = pathlib.Path("/sys/fs/cgroup/cpu")
        if parent.is_dir():
            self.group = parent / f"baton-slow-{self.pid}"
            self.group.mkdir()
            (self.group / "cpu.cfs_period_us").write_text("100000")
            (self.group / "cpu.cfs_quota_us").write_text(str(int(100000 * self.share)))
            (self.group / "cgroup.procs").write_text(str(self.pid))
        else:
            self.ended = threading.Event()
            self.thread = threading.Thread(target=self.blink, daemon=True)
            self.thread.start()

    def blink(self):
        while not self.ended.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            self.ended.wait(0.1 * (1 - self.share))
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.1 * self.share)  # the share itself, not a wait for something

    def __exit__(self, *_):
        if self.group:
            (self.group.parent / "cgroup.procs").write_text(str(self.pid))
            self.group.rmdir()
        else:
            self.ended.set()
            self.thread.join()


class SlowLink:
    """What leaves the host takes its time."""

    def __init__(self, host):
        self.host = host

    def __enter__(self):
        done = run("tc", "-n", self.host, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8mbit",
                   "burst", "64k", "latency", "20s")
        if done.returncode != 0:
            pytest.skip(f"no tbf here: {done.stderr}")

    def __exit__(self, *_):
        run("tc", "-n", self.host, "qdisc", "del", "dev", "eth0", "root")


class DeadNode:
    def __init__(self, process):
        self.process = process

    def __enter__(self):
        self.process.kill()

    def __exit__(self, *_):
        self.process.start()


def settings(gateway, prefill, decode):
    return {
        "cluster": {"gateways": [f"{gateway}:7000"], "suspect_after": 200, "dead_after": 400},
        "gateway": {"listen": f"{gateway}:8000", "control_listen": f"{gateway}:7000",
                    "admin_listen": f"{gateway}:9100"},
        "transfer": {"transport": "tcp", "network": "eth0"},
        "prefill": {"pool": [{"name": "prefill-0", "control_listen": f"{prefill}:7001",
                              "admin_listen": f"{prefill}:9100"}]},
        "decode": {"pool": [{"name": "decode-0", "control_listen": f"{decode}:7001",
                             "admin_listen": f"{decode}:9100"}]},
        "slo": {"min_events": 5, "queue_ms": 6000, "prefill_ms": 3000, "transfer_ms": 2500,
                "tiers": {"default": {"ttft_ms": 9000, "itl_ms": 600}}},
    }


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_each_fault_pages_its_own_phase(tmp_path):
    for program in ("prometheus", "prometheus-alertmanager"):
        assert shutil.which(program), f"{program} is missing: tools/setup --tests installs it"
    with Hosts(3) as hosts, inside(hosts.names[0]):
        place = {"gateway": 0, "prefill-0": 1, "decode-0": 2}
        config = settings(*hosts.addresses)
        cluster = Cluster(tmp_path, config=config, wrap=lambda name, command: [
            "ip", "netns", "exec", hosts.names[place[name]], *command])
        cluster.host, cluster.api_port = hosts.addresses[0], 8000
        with cluster:
            watch(tmp_path, cluster, hosts)


def watch(folder, cluster, hosts):
    def baton_rules(*extra):
        return subprocess.run(
            [BIN / "baton", "rules", "--config", cluster.file, "--speed-up", str(SPEED_UP), *extra],
            capture_output=True, text=True, check=True).stdout

    (folder / "rules.yaml").write_text(baton_rules())
    (folder / "prometheus.yml").write_text(
        "global: {evaluation_interval: 1s}\n"
        f"rule_files: [{folder}/rules.yaml]\n"
        "alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:9093']}]}]}\n"
        + baton_rules("--scrape"))
    (folder / "alertmanager.yml").write_text(
        baton_rules("--alertmanager").replace(
            "  group_by", "  group_wait: 0s\n  group_interval: 1s\n  group_by", 1))
    hook = Webhook(("127.0.0.1", 9999))
    load = Load(cluster)
    watchers = [
        Process("prometheus", [
            "prometheus", f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb", "--web.listen-address=127.0.0.1:9090"],
            folder / "prometheus.log"),
        Process("alertmanager", [
            "prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alerts", "--web.listen-address=127.0.0.1:9093",
            "--cluster.listen-address="], folder / "alertmanager.log")]

    def query(expression):
        try:
            with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query?query="
                                        + urllib.request.quote(expression), timeout=5) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:
            return None
        return float(result[0]["value"][1]) if result else None

    def child(name):
        parent = cluster[name].popen.pid  # `ip netns exec` becomes the program
        return parent

    def judged():
        for process in watchers:
            assert process.running(), process.tail()
        events = query('baton:slo_events:increase60m{slo="prefill"}')
        return events is not None and events >= 10

    faults = {
        "prefill": lambda: SlowProcess(child("prefill-0"), 0.03),
        "decode": lambda: SlowProcess(child("decode-0"), 0.02),
        "transfer": lambda: SlowLink(hosts.names[1]),
        "dead decode": lambda: DeadNode(cluster["decode-0"]),
    }
    try:
        for process in watchers:
            process.start()
        wait_for("enough events to judge", judged, LIMIT, every=0.5)
        assert hook.phases() == set(), f"pages without a fault: {hook.ever}"
        for name, fault in faults.items():
            phase = name.split()[-1]
            hook.forget()
            with fault():
                wait_for(f"the page of {name}", lambda: hook.firing[phase], LIMIT, every=0.2)
            wait_for(f"the end of the page of {name}", hook.quiet, LIMIT, every=0.5)
            assert hook.phases() == {phase}, f"{name} paged {hook.ever}"
            finished = load.finished
            wait_for("answers after the fault", lambda: load.finished > finished, LIMIT, every=0.2)
    finally:
        load.stop()
        for process in watchers:
            process.stop()
        hook.server.shutdown()
