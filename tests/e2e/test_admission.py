"""A gateway that strangers can reach, over real processes: HTTPS, keys that are reloaded, limits,
tiers; and that no text of prompts or answers is kept anywhere."""
import functools
import http.client
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import threading

import pytest
from harness import BIN, HEADERS, Cluster, HttpError, wait_for, words
from test_drain import metric


def new_key(name):
    """A key, and its entry for the configuration."""
    made = subprocess.run([BIN / "baton", "key", "new", "--name", name],
                          capture_output=True, text=True, timeout=30, check=True).stdout
    return re.search(r"sk-baton-[0-9a-f]{64}", made)[0], \
        {"name": name, "sha256": re.search(r"sha256: ([0-9a-f]{64})", made)[1]}


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"],
                   check=True, capture_output=True)
    return str(folder / "certificate.pem"), str(folder / "key.pem")


class KeyedConnection(http.client.HTTPSConnection):
    def __init__(self, *arguments, key, **options):
        super().__init__(*arguments, **options)
        self.bearer = key

    def request(self, method, url, body=None, headers=None):
        headers = {**(headers or {}), "Authorization": f"Bearer {self.bearer}"}
        return super().request(method, url, body, headers)


class PublicCluster(Cluster):
    """HTTPS, an admin's key in the configuration, others in a file; logs that say all they can."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.certificate, key = make_certificate(folder)
        self.keys_file = folder / "keys.yaml"
        self.admin_key, entry = new_key("operator")
        self.key = self.admin_key
        self.entries = []
        self.keys_file.write_text(json.dumps({"keys": [new_key("spare")[1]]}))
        self.trust = ssl.create_default_context(cafile=self.certificate)
        super().__init__(folder, config={
            "log": {"level": "trace"},
            "gateway": {"tls": {"certificate": self.certificate, "key": key},
                        "keys": [{**entry, "admin": True}], "keys_file": str(self.keys_file)}})

    @property
    def url(self):
        return f"https://{self.host}:{self.api_port}/v1"

    def connection(self, timeout=300):
        return KeyedConnection(self.host, self.api_port, timeout=timeout, context=self.trust, key=self.key)

    def ask(self, body, key=None, path="/v1/completions", headers=HEADERS):
        """Status, headers and body of one reply."""
        connection = self.connection()
        connection.bearer = key or self.key
        connection.request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def add_key(self, name, **limits):
        """Adds to the keys file and waits until the gateway knows."""
        key, entry = new_key(name)
        self.entries.append({**entry, **limits})
        self.keys_file.write_text(json.dumps({"keys": self.entries}))
        wait_for("the new key", lambda: self.known(key))
        return key

    def known(self, key):
        connection = self.connection()
        connection.bearer = key
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with PublicCluster(tmp_path_factory.mktemp("public")) as running:
        yield running


def body(**fields):
    return {"model": "smollm2-135m-instruct", "prompt": "Hello", "max_tokens": 4, "temperature": 0, **fields}


def test_keys_come_and_go_while_the_gateway_runs(cluster):
    key = cluster.add_key("client")
    assert cluster.ask(body(), key)[0] == 200
    status, headers, text = cluster.ask(body(), "sk-baton-unknown")
    assert status == 401 and json.loads(text)["error"]["code"] == "invalid_api_key"
    assert headers["access-control-allow-origin"] == "*"
    before = cluster.keys_file.read_text()
    cluster.keys_file.write_text("keys: [{name: broken")
    cluster["gateway"].popen.send_signal(signal.SIGHUP)
    wait_for("the gateway's complaint", lambda: "the keys stay as they were" in cluster["gateway"].tail())
    assert cluster.ask(body(), key)[0] == 200
    cluster.keys_file.write_text(before.replace("client", "client-2"))
    cluster["gateway"].popen.send_signal(signal.SIGHUP)
    assert cluster.ask(body(), key)[0] == 200


def test_a_changed_configuration_is_taken_up_or_said_to_want_a_restart(cluster):
    gateway = cluster["gateway"]
    before = cluster.file.read_text()
    changed = json.loads(before)
    changed["pools"] = {"cooldown_ms": 77_000}
    changed["slo"] = {"queue_ms": 1234}
    changed["gateway"]["max_body_mb"] = 33
    cluster.file.write_text(json.dumps(changed))
    gateway.popen.send_signal(signal.SIGHUP)
    target = 'baton_slo_target_seconds{slo="queue",tier=""}'
    wait_for("the new target", lambda: metric(cluster, "gateway", target) == 1.234)
    said = gateway.tail(5000)
    assert "pools.cooldown_ms" in said and "taken at a restart: gateway.max_body_mb" in said
    changed["slo"]["queue_ms"] = 1235  # what waits for a restart is told again
    cluster.file.write_text(json.dumps(changed))
    gateway.popen.send_signal(signal.SIGHUP)
    wait_for("the next target", lambda: metric(cluster, "gateway", target) == 1.235)
    assert gateway.tail(5000).count("taken at a restart: gateway.max_body_mb") == 2
    cluster.file.write_text("cluster: [")
    gateway.popen.send_signal(signal.SIGHUP)
    wait_for("the complaint", lambda: "the configuration stays as it was" in gateway.tail(5000))
    assert gateway.running()
    cluster.file.write_text(before)
    gateway.popen.send_signal(signal.SIGHUP)
    wait_for("the first target", lambda: metric(cluster, "gateway", target) not in (1.234, 1.235))
    assert gateway.tail(8000).count("taken at a restart") == 2, "all is as it runs"


def test_the_tool_shows_its_key_and_trusts_the_certificate(cluster):
    run = functools.partial(subprocess.run, [BIN / "baton", "status", "--base-url", cluster.url],
                            capture_output=True, text=True, timeout=30)
    trusted = {**os.environ, "SSL_CERT_FILE": cluster.certificate}
    shown = run(env={**trusted, "BATON_API_KEY": cluster.admin_key})
    assert shown.returncode == 0 and "decode-0" in shown.stdout, shown.stderr
    refused = run(env=trusted)
    assert refused.returncode == 1 and "No API key" in refused.stderr
    assert run(env={**os.environ, "BATON_API_KEY": cluster.admin_key}).returncode == 1


def test_limits_and_tiers_of_a_key(cluster):
    key = cluster.add_key("limited", requests_per_minute=3, tiers=["flex"])
    status, headers, text = cluster.ask(body(service_tier="auto"), key)
    assert status == 200 and json.loads(text)["service_tier"] == "flex"
    assert headers["x-ratelimit-limit-requests"] == "3" and headers["x-ratelimit-remaining-requests"] == "2"
    assert cluster.ask(body(service_tier="priority"), key)[0] == 403
    assert cluster.ask(body(), key)[0] == 200
    status, headers, _ = cluster.ask(body(), key)
    assert status == 429 and int(headers["retry-after"]) >= 1 and int(headers["retry-after-ms"]) >= 1


CANARY = "xylophone-quagmire"
LONG = CANARY * 5_000


def bad_requests():
    """Whatever may go wrong with a text of the client's in it."""
    yield 400, '{"model": "smollm2-135m-instruct", "prompt": "' + CANARY
    yield 400, '{"prompt": "' + CANARY + '"}'
    for field in ("temperature", "max_tokens", "n", "seed", "stream", "stop_token_ids", "logit_bias",
                  "stream_options", "service_tier", "logprobs"):
        yield 400, body(prompt=CANARY, **{field: LONG})
    yield 400, body(prompt=[CANARY, 3])
    yield 400, body(prompt=words(20_000) + CANARY)
    yield 400, body(prompt=CANARY, stop=[CANARY + str(i) for i in range(30)])
    yield 404, body(model=LONG)


def test_no_text_is_kept_anywhere(cluster):
    answers = []
    for prompt in (CANARY, f"{CANARY} {words(60)}"):
        answers.append(cluster.complete(prompt, max_tokens=30, stop=[f"{CANARY}-stop"], user=CANARY,
                                        metadata={"note": CANARY})["choices"][0]["text"])
    chat = {"model": "smollm2-135m-instruct", "max_tokens": 20,
            "messages": [{"role": "system", "content": CANARY}, {"role": "user", "content": f"Say {CANARY}."}]}
    answers.append(cluster.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"])
    for expected, request in bad_requests():
        status, _, text = cluster.ask(request)
        assert status == expected, text[:500]
        assert len(text) < 2_000, "an error repeats what it was sent"
    assert cluster.ask(body(prompt=CANARY), headers={"Content-Type": "text/plain"})[0] == 415
    assert cluster.ask(body(prompt=CANARY), key=CANARY)[0] == 401
    leaving = cluster.connection()
    leaving.request("POST", "/v1/completions", json.dumps(body(prompt=CANARY, max_tokens=2000, stream=True,
                                                               ignore_eos=True)), HEADERS)
    answer = leaving.getresponse()
    answer.read(1)
    answer.close()
    leaving.close()
    wait_for("the cancelled answer", lambda: all(node["running"] == 0 for node in cluster.nodes().values()))

    texts = [CANARY, *(answer.strip() for answer in answers if len(answer.strip()) > 12)]
    assert len(texts) > 1
    kept = {path: path.read_text(errors="replace") for path in cluster.folder.rglob("*") if path.is_file()}
    assert any("trace" in text or "debug" in text for text in kept.values())
    for admin in ("gateway", "prefill-0", "decode-0"):
        connection = http.client.HTTPConnection(cluster.admin(admin))
        connection.request("GET", "/metrics")
        kept[f"metrics of {admin}"] = connection.getresponse().read().decode()
    connection = cluster.connection()
    connection.request("GET", "/baton/status")
    kept["/baton/status"] = connection.getresponse().read().decode()
    for where, text in kept.items():
        for secret in (*texts, cluster.admin_key):
            assert secret not in text, f"{secret!r} stands in {where}"


def test_sigterm_lets_running_answers_end(cluster):
    events = cluster.stream("Count.", max_tokens=60)
    first = next(events)
    ended = threading.Thread(target=cluster["gateway"].stop)
    ended.start()
    text = first["choices"][0]["text"] + "".join(
        event["choices"][0]["text"] for event in events if event["choices"])
    ended.join()
    assert text and cluster["gateway"].popen.returncode == 0
    with pytest.raises((OSError, http.client.HTTPException, HttpError)):
        cluster.get("/v1/models")
