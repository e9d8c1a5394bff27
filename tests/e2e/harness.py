"""Real Baton processes for tests: a Cluster starts a gateway and nodes, asks them over HTTP, kills
and restarts them, and leaves nothing behind."""
import ctypes
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "release" / "bin"
CACHE = pathlib.Path(os.environ.get("BATON_CACHE") or pathlib.Path.home() / ".cache" / "baton")
SMOLLM = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = CACHE / "models" / "gemma-3-270m-q4_k_m.gguf"
SMOLLM_BLOCK_BYTES = 2 * 3 * 32 * (64 * 2 + 4)  # of one layer: K and V, heads, tokens, i16 and its scale
SMOLLM_LAYERS = 30
READY_LIMIT = 90


def free_port(host="127.0.0.1"):
    """A port below the range that the system gives to outgoing connections."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return port
            except OSError:
                continue


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def merge(base, changes):
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value
    return base


def wait_for(what, condition, limit=30, every=0.02):
    """Waits until condition() is true; fails with `what` after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"waited {limit} s for {what}"
        time.sleep(every)


def node_entry(name):
    return {"name": name, "admin_listen": f"127.0.0.1:{free_port()}"}


HEADERS = {"Content-Type": "application/json", "x-baton-figures": "1"}


class HttpError(Exception):
    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.error = body.get("error", body) if isinstance(body, dict) else body


class Process:
    def __init__(self, name, command, log, environment=None):
        self.name, self.command, self.log = name, command, log
        self.environment = environment or {}
        self.popen = None

    def start(self):
        with open(self.log, "ab") as out:
            self.popen = subprocess.Popen(
                self.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=ROOT,
                env={**os.environ, **self.environment}, preexec_fn=die_with_parent)
        return self

    def kill(self):
        self.popen.kill()
        self.popen.wait()

    def stop(self, grace=15):
        if self.popen and self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} ignored SIGTERM for {grace} s\n{self.tail()}")
        return self.popen.returncode if self.popen else None

    def running(self):
        return self.popen is not None and self.popen.poll() is None

    def tail(self, lines=30):
        return "\n".join(pathlib.Path(self.log).read_text(errors="replace").splitlines()[-lines:])


class Cluster:
    """A gateway, `prefill` prefill nodes and `decode` decode nodes; `config` is merged over the
    defaults below. Use as a context manager."""

    def __init__(self, folder, prefill=1, decode=1, config=None, wrap=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.api_port, self.control_port = free_port(), free_port()
        self.host = "127.0.0.1"
        self.config = merge({
            "cluster": {"name": "e2e", "token": "e2e-secret",
                        "gateways": [f"127.0.0.1:{self.control_port}"]},
            "model": {"id": "smollm2-135m-instruct"},
            "kv": {"arena_mb": 256},
            "gateway": {"listen": f"127.0.0.1:{self.api_port}",
                        "control_listen": f"127.0.0.1:{self.control_port}",
                        "admin_listen": f"127.0.0.1:{free_port()}"},
            "prefill": {"pool": [node_entry(f"prefill-{i}") for i in range(prefill)]},
            "decode": {"pool": [node_entry(f"decode-{i}") for i in range(decode)]},
        }, config or {})
        if not self.config["prefill"]["pool"]:
            self.config["prefill"].pop("pool")
        self.file = self.folder / "cluster.yaml"
        self.file.write_text(json.dumps(self.config, indent=1))  # JSON is YAML
        wrap = wrap or (lambda name, command: command)
        self.processes = {"gateway": Process(
            "gateway", wrap("gateway", [str(BIN / "baton-gateway"), "--config", str(self.file)]),
            self.folder / "gateway.log")}
        for role in ("decode", "prefill"):
            for node in self.config[role].get("pool", []):
                name = node["name"]
                self.processes[name] = Process(
                    name, wrap(name, [str(BIN / ("baton-node" if node.get("any_role") else f"baton-{role}")),
                                      "--config", str(self.file), "--name", name]),
                    self.folder / f"{name}.log")

    def __enter__(self):
        try:
            for process in self.processes.values():
                process.start()
            self.wait_ready()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(self, kind, value, trace):
        try:
            codes = {name: process.stop() for name, process in self.processes.items()
                     if process.running()}
        finally:
            self.kill_all()
        if kind is None:
            assert all(code == 0 for code in codes.values()), f"exit statuses after SIGTERM: {codes}"

    def kill_all(self):
        for process in self.processes.values():
            if process.running():
                process.kill()

    def __getitem__(self, name):
        return self.processes[name]

    def admin(self, name):
        """host:port of a process's /metrics page."""
        if name == "gateway":
            return self.config["gateway"]["admin_listen"]
        pool = self.config[name.split("-")[0]]["pool"]
        return next(node["admin_listen"] for node in pool if node["name"] == name)

    @property
    def url(self):
        return f"http://{self.host}:{self.api_port}/v1"

    def nodes(self):
        try:
            return {node["name"]: node for node in self.get("/baton/status")["nodes"]}
        except (OSError, http.client.HTTPException, HttpError):
            return {}

    def ready(self):
        for process in self.processes.values():
            assert process.running(), f"{process.name} ended\n{process.tail()}"
        try:
            connection = self.connection(timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status != 200:
                return False
        except (OSError, http.client.HTTPException):
            return False
        return len(self.nodes()) == len(self.processes) - 1

    def wait_ready(self):
        wait_for("the cluster", self.ready, READY_LIMIT)

    def connection(self, timeout=300):
        return http.client.HTTPConnection(self.host, self.api_port, timeout=timeout)

    def get(self, path):
        connection = self.connection()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200:
            raise HttpError(answer.status, body)
        return body

    def post_raw(self, path, text):
        connection = self.connection()
        connection.request("POST", path, text, HEADERS)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def post(self, path, body):
        status, answer = self.post_raw(path, json.dumps(body))
        if status != 200:
            raise HttpError(status, answer)
        return answer

    def complete(self, prompt, max_tokens=16, **fields):
        return self.post("/v1/completions", {
            "model": self.config["model"]["id"], "prompt": prompt, "max_tokens": max_tokens,
            "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields})

    def stream(self, prompt, max_tokens=16, **fields):
        """Yields the events of a streamed completion; [DONE] is not one."""
        connection = self.connection()
        body = {"model": self.config["model"]["id"], "prompt": prompt, "max_tokens": max_tokens,
                "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body), HEADERS)
        answer = connection.getresponse()
        if answer.status != 200:
            raise HttpError(answer.status, json.loads(answer.read()))
        for line in answer:
            line = line.strip()
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                yield json.loads(line[6:])


def words(count, seed=1):
    """A text of about 1.3 tokens a word."""
    draw = random.Random(seed)
    vocabulary = ("river stone morning letter garden window market captain silver yellow people "
                  "story number island winter").split()
    return " ".join(draw.choice(vocabulary) for _ in range(count))


def blocks(tokens):
    return (tokens + 31) // 32


def expected_kv_bytes(tokens, held_blocks=0):
    return (blocks(tokens) - held_blocks) * SMOLLM_LAYERS * SMOLLM_BLOCK_BYTES


def rss_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0
