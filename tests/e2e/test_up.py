"""`baton up` where it is asked for more than the example: TLS, its folder, what it says."""
import json
import os
import pathlib
import signal
import subprocess

import pytest
import yaml
from harness import BIN, ROOT, die_with_parent


@pytest.fixture
def certificate(tmp_path):
    """For a DNS name alone, as certificates of public services are."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=llm.example", "-addext", "subjectAltName=DNS:llm.example",
                    "-keyout", tmp_path / "key.pem", "-out", tmp_path / "certificate.pem"],
                   check=True, capture_output=True)
    return tmp_path / "certificate.pem"


def up(*arguments, config="configs/local.yaml", **options):
    command = [BIN / "baton", "up", "--config", config, "--free-ports", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, **options)


def test_ready_with_a_certificate_for_another_name(tmp_path, certificate):
    """Listens at every address; keys are asked for and none is shown. Clients verify all the same."""
    environment = {name: value for name, value in os.environ.items() if name != "BATON_API_KEY"}
    environment["SSL_CERT_FILE"] = str(certificate)
    done = up("--run-dir", tmp_path / "run", "--ready-timeout", "60", "--set", "gateway.listen=0.0.0.0:0",
              "--set", f"gateway.tls.certificate={certificate}", "--set", f"gateway.tls.key={tmp_path / 'key.pem'}",
              "--", "sh", "-c", f"echo $BATON_BASE_URL; {BIN / 'baton'} status --base-url $BATON_BASE_URL; echo rc $?",
              config="configs/public.yaml", env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("https://127.0.0.1:"), done.stdout
    assert done.stdout.splitlines()[-1] == "rc 1", done.stdout
    refusal = next(line for line in done.stderr.splitlines() if line.startswith("baton status: "))
    assert "certificate" in refusal and "SSL_CERT_FILE" in refusal


def test_says_why_it_is_not_ready(tmp_path):
    """A node that is held up is named."""
    running = subprocess.Popen(
        [BIN / "baton", "up", "--config", ROOT / "configs/local.yaml", "--free-ports", "--run-dir", tmp_path],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    started = [running.stderr.readline() for _ in range(3)]
    pids = {line.split()[1]: int(line.split()[3]) for line in started}
    os.kill(pids["decode-0"], signal.SIGSTOP)
    line = ""
    while "registered" not in line:
        line = running.stderr.readline()
        assert line, "up ended"
    assert "not yet" in line and "decode-0" in line, line
    os.kill(pids["decode-0"], signal.SIGCONT)
    assert running.stdout.readline().startswith("http://")
    running.terminate()
    assert running.wait(30) == 0


def test_a_configuration_is_no_command():
    done = subprocess.run([BIN / "baton", "up", "configs/local.yaml"], cwd=ROOT, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 2
    assert "did you mean --config configs/local.yaml?" in done.stderr


@pytest.mark.parametrize("command, stays", [("true", False), ("false", True)])
def test_its_folder_stays_where_something_failed(tmp_path, command, stays):
    done = up("--", command, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == (1 if stays else 0), done.stderr
    folders = [str(path) for path in tmp_path.glob("baton-up-*")]
    assert len(folders) == stays, folders
    assert all(f"logs are in {folder}" in done.stderr for folder in folders)


def test_nodes_say_what_cuts_the_context(tmp_path):
    """What a small arena holds, by the key that makes it larger; nothing where it holds all."""
    for megabytes, told in ((128, 1), (512, 0)):
        done = up("--run-dir", tmp_path, "--set", f"kv.arena_mb={megabytes}", "--", "sh", "-c",
                  "curl -s $BATON_BASE_URL/models")
        assert done.returncode == 0, done.stderr
        longest = json.loads(done.stdout)["data"][0]["max_model_len"]
        for node in ("prefill-0", "decode-0"):
            log = pathlib.Path(tmp_path / f"{node}.log").read_text()
            assert log.count(f"kv.arena_mb {megabytes} holds {longest} tokens") == told, log


def test_each_gateway_of_a_pool_is_started(tmp_path):
    config = yaml.safe_load((ROOT / "configs/local.yaml").read_text())
    config["cluster"]["gateways"] = ["127.0.0.1:0", "127.0.0.1:0"]
    config["gateway"]["pool"] = [
        {"name": name, "listen": "127.0.0.1:0", "control_listen": "127.0.0.1:0"} for name in ("east", "west")]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    run = tmp_path / "run"
    # A node registers with one after the other: the first is enough for `up`.
    done = up("--run-dir", run, "--", "sh", "-c", f"{BIN / 'baton'} status --base-url $BATON_BASE_URL && "
              f"until grep -q 'registered with gateway west' {run}/prefill-0.log; do sleep 0.05; done", config=file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gateway: east "), done.stdout
    assert (run / "west.log").exists()
