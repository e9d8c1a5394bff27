"""The `baton` command over real processes: up, chat, status, check, pull."""
import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.request

import harness
import pytest
from harness import BIN, ROOT

FIGURES = ("prompt_tokens", "completion_tokens", "ttft_ms", "itl_p50_ms", "kv_bytes_moved", "kv_transport",
           "prefill_node", "decode_node")


def children_of(pid):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_once_gives_answer_and_figures(tmp_path):
    """What tools/quickstart --once runs after building."""
    done = subprocess.run(
        [BIN / "baton", "up", "--config", "configs/local.yaml", "--free-ports", "--run-dir", tmp_path, "--",
         BIN / "baton", "chat", "--figures", "--once", "What is the capital of Germany?"],
        cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    figures = json.loads(lines[-1])
    assert "Berlin" in "\n".join(lines[:-1])
    assert all(name in figures for name in FIGURES), figures
    assert figures["kv_bytes_moved"] == harness.expected_kv_bytes(figures["prompt_tokens"])
    assert figures["kv_transport"] not in ("", "none")
    assert figures["ttft_ms"] > 0 and figures["itl_p50_ms"] > 0 and figures["completion_tokens"] > 1
    assert figures["prefill_node"] != figures["decode_node"]
    for line in (tmp_path / "commands.txt").read_text().splitlines():
        assert not alive(int(line.split("\t")[1])), f"left behind: {line}"


def start_up(tmp_path, *more):
    up = subprocess.Popen(
        [BIN / "baton", "up", "--config", "configs/local.yaml", "--free-ports", "--run-dir", tmp_path, *more],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=harness.die_with_parent)
    url = up.stdout.readline().strip()
    assert url.startswith("http://"), up.communicate()[1]
    return up, url, children_of(up.pid)


def test_up_status_and_ctrl_c(tmp_path):
    up, url, children = start_up(tmp_path)
    assert len(children) == 3
    table = subprocess.run([BIN / "baton", "status", "--base-url", url], capture_output=True, text=True, check=True)
    assert "prefill" in table.stdout and "decode" in table.stdout
    as_json = subprocess.run([BIN / "baton", "status", "--base-url", url, "--json"], capture_output=True, text=True,
                             check=True)
    assert len(json.loads(as_json.stdout)["nodes"]) == 2
    titles = next(line for line in table.stdout.splitlines() if line.startswith("NODE"))
    assert "MODEL" in titles and "QUEUED tokens" in titles
    assert table.stdout.count("smollm2-135m-instruct") == 2
    dashboard = ""
    while not dashboard:
        line = up.stderr.readline()
        assert line, "up tells no dashboard"
        dashboard = line.partition("dashboard: ")[2].strip()
    assert b"<title>Baton</title>" in urllib.request.urlopen(dashboard, timeout=30).read()
    chat = subprocess.run([BIN / "baton", "chat", "--base-url", url, "--max-tokens", "8"], capture_output=True,
                          text=True, input="Hello\n/reset\nBye\n", timeout=60)
    assert chat.returncode == 0 and len(chat.stdout.splitlines()) >= 3, chat
    trace = [BIN / "baton", "trace", "--base-url", url]
    listed = subprocess.run(trace, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(listed) == 3 and listed[0].startswith("ENDED"), listed
    one = subprocess.run([*trace, "chatcmpl-" + listed[1].split()[1]], capture_output=True, text=True, check=True).stdout
    phases = [line.split()[:2] for line in one.partition("PHASE")[2].splitlines()[1:]]
    assert phases == [["queue", "gateway"], ["prefill", "prefill-0"], ["transfer", "prefill-0"], ["decode", "decode-0"]]
    unknown = subprocess.run([*trace, "0123456789abcdef"], capture_output=True, text=True)
    assert unknown.returncode == 1 and "no such request" in unknown.stderr
    up.send_signal(signal.SIGINT)
    assert up.wait(30) == 0
    assert not any(alive(pid) for pid in children)


def test_up_tells_its_command_the_base_url(tmp_path):
    done = subprocess.run(
        [BIN / "baton", "up", "--config", "configs/local.yaml", "--free-ports", "--run-dir", tmp_path, "--",
         "sh", "-c", "echo $BATON_BASE_URL"], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", done.stdout.strip())


def test_kill_of_up_leaves_nothing(tmp_path):
    up, _, children = start_up(tmp_path)
    assert len(children) == 3
    up.kill()
    up.wait()
    harness.wait_for("the children's end", lambda: not any(alive(pid) for pid in children))


def test_up_tells_who_died_and_keeps_the_rest(tmp_path):
    up, _, children = start_up(tmp_path)
    commands = dict(line.split("\t")[:2] for line in (tmp_path / "commands.txt").read_text().splitlines())
    victim = next(name for name in commands if name.startswith("prefill"))
    os.kill(int(commands[victim]), signal.SIGKILL)
    line = ""
    while "!!!!" not in line:
        line = up.stderr.readline()
        assert line, "up ended without telling"
    assert victim in line and "signal 9" in line
    others = [pid for pid in children if pid != int(commands[victim])]
    assert all(alive(pid) for pid in others) and up.poll() is None
    up.terminate()
    assert up.wait(30) == 0


def test_up_on_a_busy_port():
    with harness.socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = "127.0.0.1:%d" % holder.getsockname()[1]
        done = subprocess.run([BIN / "baton", "up", "--config", "configs/local.yaml", "--set",
                               f"gateway.listen={address}"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert address in done.stderr and "in use" in done.stderr


def test_check_names_file_line_and_nearest_key(tmp_path):
    good = subprocess.run([BIN / "baton", "check", "configs/local.yaml"], cwd=ROOT, capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    broken = tmp_path / "broken.yaml"
    broken.write_text((ROOT / "configs/local.yaml").read_text() + "\ntransfr:\n  transport: tcp\n")
    done = subprocess.run([BIN / "baton", "check", broken], capture_output=True, text=True)
    assert done.returncode == 2
    line = broken.read_text().splitlines().index("transfr:") + 1
    assert f"{broken}:{line}" in done.stderr and "transfer" in done.stderr, done.stderr


def test_check_names_ucx_settings_that_nobody_knows(tmp_path):
    text = (ROOT / "configs/local.yaml").read_text()
    assert "\n  transport: auto" in text
    config = tmp_path / "cluster.yaml"
    config.write_text(text.replace("\n  transport: auto", "\n  transport: tcp").replace("\n  ucx: {}", "\n  ucx: {UCX_KEEPALIVE_INTERVALL: 1s}"))
    done = subprocess.run([BIN / "baton", "check", config], capture_output=True, text=True,
                          env={**os.environ, "UCX_NO_SUCH_SETTING": "1"})
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "does not know or use" in line]
    assert len(told) == 1, done.stderr
    assert "UCX_KEEPALIVE_INTERVALL" in told[0] and "UCX_NO_SUCH_SETTING" in told[0], told
    assert "UCX_KEEPALIVE_INTERVAL," not in told[0] + ",", told  # shipped by Baton
    assert "ucx" in done.stdout


@pytest.mark.parametrize("key, value", [("path", "/no/such/model.gguf"), ("arena_mb", "4194304")])
def test_check_sees_what_a_node_would_trip_over(tmp_path, key, value):
    lines = (ROOT / "configs/local.yaml").read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if line.strip().startswith(key + ":"))
    lines[number] = f"  {key}: {value}"
    config = tmp_path / "cluster.yaml"
    config.write_text("\n".join(lines) + "\n")
    done = subprocess.run([BIN / "baton", "check", config], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{config}:{number + 1}: " in done.stderr and value in done.stderr, done.stderr


def test_check_tells_what_the_machine_lacks(tmp_path):
    """Notes where the file may be another machine's; faults with --host."""
    config = tmp_path / "cluster.yaml"
    config.write_text("""cluster:
  token: replace-this-with-a-secret
  gateways: ["10.0.0.1:7000"]
gateway:
  tls:
    certificate: /no/such/certificate.pem
    key: /no/such/key.pem
transfer:
  network: no-such-nic
decode:
  pool:
    - name: decode-0
prefill:
  pool:
    - name: prefill-0
""")
    expected = {2: "placeholder", 6: "/no/such/certificate.pem", 7: "/no/such/key.pem", 9: "no-such-nic"}
    for arguments, status in (([], 0), (["--host"], 2)):
        done = subprocess.run([BIN / "baton", "check", *arguments, config], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        for line, says in expected.items():
            told = [text for text in done.stderr.splitlines() if f"{config}:{line}: " in text]
            assert len(told) == 1 and says in told[0], (line, done.stderr)
            assert ("note: " in told[0]) == (status == 0)
        places = [int(number) for number in re.findall(rf"{config}:(\d+): ", done.stderr)]
        assert places == sorted(places), done.stderr


def test_check_tells_that_there_is_no_gpu():
    if (BIN / "libbaton_cuda.so").exists():
        pytest.skip("the plug-in is there: so may be the GPUs")
    config = "configs/eight_gpus.yaml"
    done = subprocess.run([BIN / "baton", "check", "--host", config], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "good" not in done.stdout
    assert "prefill.pool.0.engine.backend: no CUDA" in done.stderr
    assert done.stderr.count("no CUDA") == 1, "eight nodes, one reason"


@pytest.mark.parametrize("text, line, says", [
    ("cluster: {token: t}\nmodel: {id: no-such-model}\ndecode: {local_prefill_max_tokens: 9, pool: [{name: d}]}\n", 2,
     "no-such-model"),
    ("cluster: {token: t}\ndecode:\n  pool: []\n", 3, "at least one decode node"),
    ("cluster: {token: t}\ngateway:\n  keys:\n    - {name: a, sha256: %s}\n    - {name: a, sha256: %s}\n"
     % ("0" * 64, "1" * 64), 5, "'a' is the name of two keys"),
])
def test_check_refuses_what_nobody_could_run(tmp_path, text, line, says):
    config = tmp_path / "cluster.yaml"
    config.write_text(text)
    done = subprocess.run([BIN / "baton", "check", config], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{config}:{line}: " in done.stderr and says in done.stderr, done.stderr


@pytest.mark.parametrize("arguments, meant", [
    (["chekc"], "check"),
    (["bench", "engin"], "engine"),
    (["up", "--confg", "x.yaml"], "--config"),
    (["check", "--hots=1"], "--host"),
    (["bench", "serve", "--promts", "x"], "--prompts"),
    (["check", "--completely-else"], None),
    (["fly-to-the-moon"], None),
])
def test_wrong_arguments_get_a_suggestion(arguments, meant):
    done = subprocess.run([BIN / "baton", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    told = re.findall(r"did you mean '(.*)'\?", done.stderr)
    assert told == ([meant] if meant else []), done.stderr
    assert "--help" in done.stderr


def test_version_everywhere():
    for program in ("baton", "baton-gateway", "baton-prefill", "baton-decode"):
        done = subprocess.run([BIN / program, "--version"], capture_output=True, text=True)
        assert done.returncode == 0 and re.fullmatch(rf"{program} \d+\.\d+\.\d+\n", done.stdout), done


def test_every_example_configuration_is_good():
    files = [path for path in (ROOT / "configs").glob("*.yaml") if path.name != "models.yaml"]
    assert files
    for path in files:
        done = subprocess.run([BIN / "baton", "check", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_help_everywhere():
    top = subprocess.run([BIN / "baton", "--help"], capture_output=True, text=True)
    assert top.returncode == 0
    for command in ("up", "chat", "status", "trace", "drain", "key", "pull", "check", "bench", "perplexity", "plan",
                    "rules"):
        assert command in top.stdout
        done = subprocess.run([BIN / "baton", command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and "Example" in done.stdout, command
    assert subprocess.run([BIN / "baton", "fly"], capture_output=True).returncode == 2
    for program in ("baton-gateway", "baton-prefill", "baton-decode"):
        assert subprocess.run([BIN / program, "--no-such-flag"], capture_output=True).returncode == 2, program
    text = ROOT / "README.md"
    for command in (["pull", "no-such-model"], ["perplexity", text, "--model", "no-such-model"],
                    ["perplexity", text, "--model", "/no/such/model.gguf"]):
        assert subprocess.run([BIN / "baton", *command], capture_output=True).returncode == 2, command
