"""Processes that die, refuse, or are given bad input: clear errors, and nothing else is lost."""
import json
import os
import pathlib
import socket
import subprocess
import threading

import harness
import pytest
from harness import BIN, Cluster, HttpError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("failures")) as running:
        yield running


def run_node(cluster, role, name, *overrides, timeout=60):
    command = [str(BIN / f"baton-{role}"), "--config", str(cluster.file), "--name", name]
    for override in overrides:
        command += ["--set", override]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=harness.ROOT)


def refusal_of(cluster, tmp_path, role, name, *overrides):
    """What a node that the gateway refuses says; it may end or go on dialling."""
    command = [str(BIN / f"baton-{role}"), "--config", str(cluster.file), "--name", name]
    # The port of the file is taken by the node that this one pretends to be.
    for override in (f"{role}.pool.0.admin_listen=127.0.0.1:0", *overrides):
        command += ["--set", override]
    node = harness.Process("refused", command, tmp_path / "refused.log").start()
    try:
        harness.wait_for("the refusal", lambda: "refused" in node.tail().lower() or not node.running())
        return node.tail()
    finally:
        if node.running():
            node.kill()


@pytest.mark.parametrize("victim", ["prefill-0", "decode-0", "gateway"])
def test_kill_idle_and_start_again(cluster, victim):
    prompt = harness.words(50, 11)
    before = cluster.complete(prompt, max_tokens=8)
    others = {name: process.popen.pid for name, process in cluster.processes.items() if name != victim}
    cluster[victim].kill()
    cluster[victim].start()
    if victim != "gateway":  # its registration from before may still stand for a moment
        harness.wait_for("the gateway to notice", lambda: cluster.ready(), harness.READY_LIMIT)
    cluster.wait_ready()
    after = cluster.complete(prompt, max_tokens=8)
    assert after["choices"][0]["token_ids"] == before["choices"][0]["token_ids"]
    for name, pid in others.items():
        assert cluster[name].popen.pid == pid and cluster[name].running()


def test_prefill_that_dies_at_work_is_waited_for(cluster):
    prompt = harness.words(4000, 12)
    result = {}

    def ask():
        try:
            result["answer"] = cluster.complete(prompt, max_tokens=8)
        except HttpError as error:
            result["error"] = error

    client = threading.Thread(target=ask)
    client.start()
    harness.wait_for("prefill to be at work",
                     lambda: cluster.nodes().get("prefill-0", {}).get("queued_tokens", 0) > 0, every=0.005)
    cluster["prefill-0"].kill()
    harness.wait_for("readiness to end", lambda: not cluster.nodes().get("prefill-0"))
    assert client.is_alive()
    cluster["prefill-0"].start()
    client.join(harness.READY_LIMIT)
    assert "answer" in result, result
    cluster.wait_ready()
    assert cluster.complete(prompt, max_tokens=8)["choices"] == result["answer"]["choices"]


def test_client_that_leaves_frees_the_nodes(cluster):
    stream = cluster.stream(harness.words(20, 13), max_tokens=2000)
    next(stream)
    harness.wait_for("the request to run", lambda: cluster.nodes()["decode-0"]["running"] == 1)
    stream.close()
    harness.wait_for("the request to end", lambda: cluster.nodes()["decode-0"]["running"] == 0)


def test_prompt_longer_than_the_context(cluster):
    with pytest.raises(HttpError) as caught:
        cluster.complete(harness.words(9000, 14))
    assert caught.value.status == 400
    assert caught.value.error["code"] == "context_length_exceeded"
    assert "8192" in caught.value.error["message"]


def test_unknown_model(cluster):
    with pytest.raises(HttpError) as caught:
        cluster.post("/v1/completions", {"model": "gpt-5", "prompt": "x"})
    assert caught.value.status == 404 and "gpt-5" in caught.value.error["message"]


@pytest.mark.parametrize("body", ['{"model": "x", ', '{"model": }', "", "[1, 2", '{"a": "\\ud800"'])
def test_malformed_json(cluster, body):
    status, answer = cluster.post_raw("/v1/chat/completions", body)
    assert status == 400 and answer["error"]["message"], answer


def test_position_of_the_fault_in_json(cluster):
    status, answer = cluster.post_raw("/v1/chat/completions", '{"model": "m", "messages": [}')
    assert status == 400
    assert any(character.isdigit() for character in answer["error"]["message"]), answer


def test_node_with_another_model_is_refused_by_name(cluster, tmp_path):
    if not harness.GEMMA.exists():
        pytest.skip("baton pull gemma3-270m has not run")
    text = refusal_of(cluster, tmp_path, "decode", "decode-0", f"model.path={harness.GEMMA}")
    assert any(word in text for word in ("weights", "layout", "tokenizer", "numerics")), text


def test_node_with_the_wrong_token_is_refused(cluster, tmp_path):
    assert "token" in refusal_of(cluster, tmp_path, "prefill", "prefill-0", "cluster.token=wrong")


def test_refusals_lost_nothing(cluster):
    assert cluster.complete("Hello", max_tokens=4)["usage"]["completion_tokens"] == 4


def test_too_little_memory_for_the_arena(cluster):
    done = run_node(cluster, "decode", "decode-0", "kv.arena_mb=1000000")
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "1000000" in text or "arena" in text, text


def test_unknown_node_name(cluster):
    done = run_node(cluster, "decode", "decode-9")
    assert done.returncode == 2 or done.returncode == 1
    assert "decode-9" in done.stdout + done.stderr


def test_truncated_and_strange_model_files(cluster, tmp_path):
    whole = harness.SMOLLM.read_bytes()
    for name, content in (("cut", whole[:1_000_000]), ("short", whole[:20]), ("none", b""),
                          ("foreign", b"\x7fELF" + bytes(1000)),
                          ("arch", whole[:4096].replace(b"llama", b"lhama") + whole[4096:])):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        done = run_node(cluster, "decode", "decode-0", f"model.path={path}")
        assert done.returncode == 1, (name, done)
        assert f"{name}.gguf" in done.stdout + done.stderr, (name, done)
        path.unlink()


def test_busy_ports(cluster):
    for key in ("gateway.listen", "gateway.control_listen"):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            done = subprocess.run(
                [str(BIN / "baton-gateway"), "--config", str(cluster.file),
                 "--set", f"gateway.listen=127.0.0.1:{port if key == 'gateway.listen' else 0}",
                 "--set", f"gateway.control_listen=127.0.0.1:{port if key != 'gateway.listen' else 0}"],
                capture_output=True, text=True, timeout=30)
            assert done.returncode != 0, key
            assert str(port) in done.stdout + done.stderr, done


def test_unknown_key_in_configuration(tmp_path, cluster):
    path = tmp_path / "bad.yaml"
    config = json.loads(cluster.file.read_text())
    config["decode"]["max_bach"] = 3
    path.write_text(json.dumps(config, indent=1))
    done = subprocess.run([str(BIN / "baton-gateway"), "--config", str(path)], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 2, done
    assert "max_batch" in done.stdout + done.stderr


def listeners_of(pid):
    """Local addresses, as in /proc, of the process's listening TCP sockets."""
    inodes = {os.readlink(fd).removeprefix("socket:[").removesuffix("]")
              for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()
              if os.readlink(fd).startswith("socket:")}
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_cluster_of_one_host_listens_on_loopback_alone(tmp_path):
    with Cluster(tmp_path, config={"transfer": {"transport": "tcp"}}) as cluster:
        before = listeners_of(cluster["decode-0"].popen.pid)
        assert cluster.complete("Hello there", 4)["baton"]["kv_transport"] == "tcp"
        after = listeners_of(cluster["decode-0"].popen.pid)
        assert after > before, "the data plane listens"
        assert all(address.startswith("0100007F:") for address in after), after
