"""`baton bench gateway` against a real gateway: it runs, nothing fails, its JSON has what is promised.
How fast anything is, is not tested here."""
import json
import subprocess

from harness import BIN


def bench(*arguments):
    done = subprocess.run([BIN / "baton", "bench", "gateway", "--json", *arguments], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_requests_and_streams():
    report = bench("--seconds", "0.3", "--small-rate", "100", "--large-rate", "10", "--streams", "50",
                   "--stream-seconds", "1")
    for name in ("small", "large"):
        row = report[name]
        assert row["requests"] > 0 and row["failed"] == 0, row
        for key in ("added_p50_us", "added_p99_us", "cpu_us_per_request", "bare", "ttft"):
            assert key in row, row
        for key in ("tokenizer_us", "parse_us", "template_us"):
            assert row[key] > 0, row  # counted by the gateway itself
    stream = report["stream"]
    assert stream["cpu_us_per_token"] > 0 and stream["tokens"] > 0 and stream["failed"] == 0, stream
    assert stream["memory_kib_per_stream"] == stream["open"][0]["memory_kib_per_stream"]
    assert stream["open"][0]["streams"] == 50
    assert stream["open"][0]["missed_tokens"] == 0 and stream["open"][0]["refused"] == 0, stream


def test_one_part_alone():
    report = bench("--only", "open", "--streams", "20", "--stream-seconds", "1")
    assert list(report) == ["stream"] and report["stream"]["open"][0]["streams"] == 20, report
    report = bench("--only", "small", "--seconds", "0.3", "--small-rate", "100")
    assert list(report) == ["small"], report


def test_soak_and_a_wrong_model():
    soak = bench("--soak", "2")["soak"]
    assert soak["requests"] > 0 and soak["failed"] == 0 and "slope_kib_per_min" in soak, soak
    done = subprocess.run([BIN / "baton", "bench", "gateway", "--model", "/no/such.gguf"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode != 0 and "/no/such.gguf" in done.stderr, done
