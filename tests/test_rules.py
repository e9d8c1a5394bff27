"""`baton rules`: accepted by promtool, and every alert fires, names its phase and ends, by promtool's
own evaluation. The runbooks have a heading for each alert."""
import pathlib
import re
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATON = ROOT / "build/release/bin/baton"
CONFIG = ROOT / "configs/two_hosts.yaml"


def baton(*arguments):
    done = subprocess.run([BATON, "rules", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(baton("--config", str(CONFIG)))
    return path


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True,
                          timeout=120)


def alerts(rules):
    return [rule for group in yaml.safe_load(rules.read_text())["groups"]
            for rule in group["rules"] if "alert" in rule]


def test_promtool_accepts_them(rules):
    done = promtool("check", "rules", rules)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_phase_and_a_runbook(rules):
    for rule in alerts(rules):
        phase = rule["labels"]["phase"]
        assert phase in ("prefill", "transfer", "decode", "gateway")
        assert rule["labels"]["severity"] in ("page", "ticket")
        page, anchor = rule["annotations"]["runbook_url"].split("#")
        headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.M)
        assert rule["alert"] in headings and anchor == rule["alert"].lower()


def histogram(name, labels, edge, slow):
    """Series of ten events a minute; while `slow`, all of them miss `edge`."""
    good = "0+0x120" if slow else "0+10x240"
    rest = "0+0x120 0+10x240" if slow else "0+10x480"
    both = labels + "," if labels else ""
    late = f"{good} {rest}" if slow else rest
    return [
        {"series": f'{name}_bucket{{{both}le="{edge}"}}', "values": late},
        {"series": f"{name}_count{{{labels}}}", "values": "0+10x480"},
    ]


PHASE = "baton_request_phase_seconds"
ITL = "baton_inter_token_latency_seconds"
TTFT = "baton_time_to_first_token_seconds"
HEALTHY = {
    "prefill": (PHASE, 'phase="prefill"', "2"),
    "transfer": (PHASE, 'phase="transfer"', "0.25"),
    "queue": (PHASE, 'phase="queue",waiting_on="none"', "1"),
    "prefill_queue": (PHASE, 'phase="queue",waiting_on="prefill"', "1"),
    "decode_queue": (PHASE, 'phase="queue",waiting_on="decode"', "1"),
    "itl": (ITL, 'tier="default"', "0.1"),
    "ttft": (TTFT, 'tier="default"', "2.5"),
}
BURNS = {
    "prefill": ("BatonPrefillSloBurn", "prefill"),
    "transfer": ("BatonTransferSloBurn", "transfer"),
    "prefill_queue": ("BatonPrefillQueueSloBurn", "prefill"),
    "decode_queue": ("BatonDecodeQueueSloBurn", "decode"),
    "itl": ("BatonItlSloBurn", "decode"),
    "ttft": ("BatonTtftSloBurn", "gateway"),
}


def run(tmp_path, rules, series, expected):
    """`expected`: by minute, the alerts that page then; all others must be silent."""
    pages = [rule for rule in alerts(rules) if rule["labels"]["severity"] == "page"]
    tests = [{"eval_time": f"{at}m", "alertname": name,
              "exp_alerts": [{"exp_labels": paging[name]}] if name in paging else []}
             for at, paging in expected.items() for name in sorted({r["alert"] for r in pages})]
    for test in tests:
        for alert in test["exp_alerts"]:
            rule = next(r for r in pages if r["alert"] == test["alertname"]
                        and (not alert["exp_labels"].get("tier")
                             or r["labels"].get("tier") == alert["exp_labels"]["tier"]))
            alert["exp_labels"] = {**alert["exp_labels"], **rule["labels"]}
            alert["exp_annotations"] = rule["annotations"]
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({
        "rule_files": [str(rules)], "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": tests}]}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


NODES = [{"series": f'baton_nodes{{role="{role}",state="alive"}}', "values": "1x600"}
         for role in ("prefill", "decode")]
GATEWAY = [{"series": "baton_num_requests_waiting", "values": "0x600"}]


@pytest.mark.parametrize("slow", BURNS)
def test_a_slow_phase_calls_its_own_people_and_stops(slow, tmp_path, rules):
    series = list(NODES + GATEWAY)
    for name, (metric, labels, edge) in HEALTHY.items():
        if name in ("prefill_queue", "decode_queue") and name != slow:
            continue
        series += histogram(metric, labels, edge, name == slow)
    # Slow prompts make first tokens late, too: that must call nobody else.
    if slow in ("prefill", "transfer"):
        series = [s for s in series if TTFT not in s["series"]]
        series += histogram(*HEALTHY["ttft"], True)
    alert, phase = BURNS[slow]
    tier = "default" if slow in ("itl", "ttft") else ""
    labels = {"phase": phase, "slo": slow, "tier": tier, "severity": "page"}
    expected = {alert: {name: value for name, value in labels.items() if value}}
    run(tmp_path, rules, series, {60: expected, 300: {}})


@pytest.mark.parametrize("role, alert", [("prefill", "BatonNoPrefillNode"),
                                         ("decode", "BatonNoDecodeNode")])
def test_a_dead_pool_calls_its_own_people(role, alert, tmp_path, rules):
    series = [s for s in NODES if role not in s["series"]] + GATEWAY
    series += [{"series": f'baton_nodes{{role="{role}",state="alive"}}',
                "values": "1x9 0x20 1x100"}]
    run(tmp_path, rules, series, {20: {alert: {"phase": role, "severity": "page"}}, 60: {}})


def test_a_missing_gateway_is_told(tmp_path, rules):
    run(tmp_path, rules, NODES,
        {20: {"BatonGatewayGone": {"phase": "gateway", "severity": "page"}}})


def test_little_traffic_calls_nobody(tmp_path, rules):
    series = NODES + GATEWAY + [
        {"series": f'{PHASE}_bucket{{phase="prefill",le="2"}}', "values": "0x480"},
        {"series": f'{PHASE}_count{{phase="prefill"}}', "values": "0+1x9 9x471"}]
    run(tmp_path, rules, series, {30: {}})


SEVERAL = {"cluster": {"token": "a-secret", "gateways": ["10.0.0.1:7000", "10.0.0.2:7000"]},
           "gateway": {"listen": "0.0.0.0:8000", "control_listen": "10.0.0.1:7000",
                       "admin_listen": "10.0.0.1:9400"},
           "decode": {"local_prefill_max_tokens": 1048576, "pool": [{"name": "decode-0", "admin_listen": "10.0.0.1:9100"}]}}


def scraped(tmp_path, config):
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    [job] = yaml.safe_load(baton("--config", str(file), "--scrape"))["scrape_configs"]
    return [(entry["labels"]["node"], *entry["targets"]) for entry in job["static_configs"]
            if entry["labels"]["role"] == "gateway"]


def test_every_gateway_is_scraped_under_its_own_name(tmp_path):
    assert scraped(tmp_path, SEVERAL) == [("gateway-0", "10.0.0.1:9400"), ("gateway-1", "10.0.0.2:9400")]
    pool = [{"name": "east", "control_listen": "10.0.0.1:7000", "admin_listen": "10.0.0.1:9401"},
            {"name": "west", "control_listen": "10.0.0.2:7000", "admin_listen": "10.0.0.2:9402"}]
    named = {**SEVERAL, "gateway": {**SEVERAL["gateway"], "pool": pool}}
    assert scraped(tmp_path, named) == [("east", "10.0.0.1:9401"), ("west", "10.0.0.2:9402")]


def test_gateways_of_one_host_want_addresses_of_their_own(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump({**SEVERAL, "cluster": {"token": "a-secret", "gateways": [
        "10.0.0.1:7000", "10.0.0.1:7001"]}}))
    done = subprocess.run([BATON, "rules", "--config", file, "--scrape"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "gateway-0 and gateway-1 have one address" in done.stderr, done


def test_scrape_and_alertmanager_examples(tmp_path):
    scrape = tmp_path / "prometheus.yml"
    scrape.write_text(baton("--config", str(CONFIG), "--scrape"))
    done = promtool("check", "config", scrape)
    assert done.returncode == 0, done.stdout + done.stderr
    job = yaml.safe_load(scrape.read_text())["scrape_configs"][0]
    assert job["honor_labels"], "the role of baton_nodes would be lost"
    targets = [target for entry in
               yaml.safe_load(scrape.read_text())["scrape_configs"][0]["static_configs"]
               for target in entry["targets"]]
    assert "10.0.0.2:9100" in targets
    receivers = yaml.safe_load(baton("--alertmanager"))["receivers"]
    assert {r["name"] for r in receivers} == {"gateway", "prefill", "transfer", "decode"}
