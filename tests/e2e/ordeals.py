"""Long runs over real processes, with figures: nodes that die and hang under load, clients that leave
at any moment, and an undisturbed run that must raise no alarm. `tools/ordeal` runs them by hand;
test_chaos.py runs short forms. Each returns a dictionary; "faults" lists what must not be."""
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import threading
import time
import urllib.request

import harness
from harness import Cluster, HttpError

POLL = 0.005  # between two looks at the gateway's table of nodes


def is_settled(cluster):
    """Nothing runs and no block is held but by the prefix caches."""
    try:
        status = cluster.get("/baton/status")
    except (OSError, http.client.HTTPException, HttpError):
        return False
    nodes = status["nodes"]
    return (len(nodes) == len(cluster.processes) - 1 and status["queued"] == 0
            and status["running"] == 0 and all(
                node["running"] == 0 and node["blocks_granted"] == 0
                and node["blocks_in_use"] == 0 and node["sequences_given"] == 0
                and node["credits_used"] == 0 and node["queued_tokens"] == 0
                and node["blocks_free"] == node["blocks_total"] for node in nodes))


def what_is_left(cluster):
    """For the message when a cluster does not settle."""
    status = cluster.get("/baton/status")
    keys = ("name", "running", "blocks_granted", "blocks_in_use", "blocks_free", "blocks_total",
            "sequences_given", "credits_used", "queued_tokens")
    return {"queued": status["queued"], "running": status["running"],
            "nodes": [{key: node[key] for key in keys} for node in status["nodes"]]}


def settle(cluster, faults, limit=60):
    end = time.monotonic() + limit
    while not is_settled(cluster):
        if time.monotonic() > end:
            faults.append(f"not all blocks and requests came back within {limit} s: "
                          f"{what_is_left(cluster)}")
            return
        time.sleep(0.05)


def metrics(address):
    """Every sample of a /metrics page: {'name{labels}': value}."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {name: float(value) for name, value in
            (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))}


def total(samples, prefix):
    return sum(value for name, value in samples.items()
               if name == prefix or name.startswith(prefix + "{"))


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def milliseconds(values):
    return {"count": len(values), "p50_ms": round(1000 * percentile(values, 0.5), 1),
            "max_ms": round(1000 * max(values), 1)} if values else {"count": 0}


class MemoryWatch:
    """Resident memory of processes over time; slopes by least squares over each process's life."""

    def __init__(self, cluster, every=1.0):
        self.cluster, self.every = cluster, every
        self.samples = {}  # (name, pid) -> [(seconds, bytes)]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        begin = time.monotonic()
        while not self.over.wait(self.every):
            for name, process in self.cluster.processes.items():
                pid = process.popen.pid
                try:
                    held = harness.rss_bytes(pid)
                except OSError:
                    continue
                if held:
                    self.samples.setdefault((name, pid), []).append(
                        (time.monotonic() - begin, held))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def slopes(self, warm_up=20.0, least=30):
        """MB a minute by process, for those that lived long enough to say something."""
        found = {}
        for (name, pid), points in self.samples.items():
            points = [(t, b) for t, b in points if t >= points[0][0] + warm_up]
            if len(points) < least:
                continue
            slope = statistics.linear_regression(*zip(*points)).slope
            found[f"{name}/{pid}"] = {"mb_per_min": round(slope * 60 / 1e6, 3),
                                      "first_mb": round(points[0][1] / 1e6, 1),
                                      "last_mb": round(points[-1][1] / 1e6, 1)}
        return found


class Question:
    """One request with the answer that an undisturbed cluster gives to it."""

    def __init__(self, draw, number):
        self.prompt = harness.words(draw.choice([15, 40, 90, 200, 400]), 7000 + number)
        self.max_tokens = draw.choice([16, 48, 96, 160])
        self.fields = {} if number % 2 else {"temperature": 0.8, "seed": 100 + number}
        self.streamed = number % 3 != 0
        self.expected = None

    def ask(self, cluster):
        """Text and completion tokens."""
        if not self.streamed:
            answer = cluster.complete(self.prompt, self.max_tokens, **self.fields)
            return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
        text, tokens, ended = "", None, False
        for event in cluster.stream(self.prompt, self.max_tokens, **self.fields):
            if "error" in event:
                raise HttpError(200, event)
            for choice in event["choices"]:
                text += choice["text"]
                ended = ended or choice["finish_reason"] is not None
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
        if not ended:
            raise HttpError(200, {"error": {"message": "the stream ended without a finish_reason"}})
        return text, tokens


class Load:
    """Clients that ask the same questions again and again and compare the answers."""

    def __init__(self, cluster, clients, questions=12, seed=1, progress=None):
        draw = random.Random(seed)
        self.cluster = cluster
        self.questions = [Question(draw, i) for i in range(questions)]
        for question in self.questions:
            question.expected = question.ask(cluster)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.completed, self.errors, self.wrong, self.seconds = 0, [], [], []
        self.threads = [threading.Thread(target=self.run, args=(seed * 1000 + i,))
                        for i in range(clients)]

    def run(self, seed):
        draw = random.Random(seed)
        while not self.over.is_set():
            question = draw.choice(self.questions)
            begin = time.monotonic()
            try:
                answer = question.ask(self.cluster)
            except (HttpError, OSError, http.client.HTTPException, KeyError, ValueError) as error:
                with self.lock:
                    self.errors.append(f"{type(error).__name__}: {error}")
                continue
            with self.lock:
                self.completed += 1
                self.seconds.append(time.monotonic() - begin)
                if answer != question.expected:
                    self.wrong.append({"expected": question.expected, "got": answer})

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        end = time.monotonic() + 180
        for thread in self.threads:
            thread.join(max(0.1, end - time.monotonic()))

    def faults(self):
        found = []
        if any(thread.is_alive() for thread in self.threads):
            found.append("a request never ended")
        if self.errors:
            found.append(f"{len(self.errors)} requests failed, such as: {self.errors[0]}")
        if self.wrong:
            found.append(f"{len(self.wrong)} answers differ from the undisturbed run, such as: "
                         f"{self.wrong[0]}")
        return found


def until_gone(cluster, name, incarnation, limit):
    """Seconds until the gateway no longer counts on this life of the node; None when it still does
    after `limit` seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        node = cluster.nodes().get(name)
        if node is None or node["incarnation"] != incarnation:
            return time.monotonic() - begin
        time.sleep(POLL)
    return None


def kills(folder, minutes=3.0, every=3.0, clients=16, seed=1, prefill=2, decode=2, config=None,
          progress=print):
    """A node is killed or stopped every `every` seconds; killed ones are started again at once,
    stopped ones go on after the gateway has given them up. At least one node of each role is left."""
    draw = random.Random(seed)
    killed, stopped, faults = [], [], []
    counts = {"kill": 0, "stop": 0}
    options = harness.merge({"gateway": {"max_node_losses": 1000},
                             "prefill": {"engine": {"threads": 1}},
                             "decode": {"engine": {"threads": 1}}}, config or {})
    with Cluster(folder, prefill=prefill, decode=decode, config=options) as cluster:
        limits = cluster.config["cluster"]
        patience = 4 * limits.get("heartbeat_ms", 250) / 1000 * limits.get("dead_after", 6)
        load = Load(cluster, clients, seed=seed)
        before = metrics(cluster.admin("gateway"))
        names = [name for name in cluster.processes if name != "gateway"]
        with MemoryWatch(cluster) as memory, load:
            end = time.monotonic() + 60 * minutes
            due = time.monotonic() + every
            while time.monotonic() < end:
                time.sleep(max(0.0, due - time.monotonic()))
                due += every
                up = cluster.nodes()
                able = [name for name in names if name in up and up[name]["state"] == "alive"
                        and sum(other.split("-")[0] == name.split("-")[0] for other in up) > 1]
                if not able:
                    continue
                name = draw.choice(able)
                process, incarnation = cluster[name], up[name]["incarnation"]
                how = draw.choice(["kill", "stop"])
                counts[how] += 1
                if how == "kill":
                    process.popen.kill()
                    seconds = until_gone(cluster, name, incarnation, patience)
                    process.popen.wait()
                    process.start()
                    killed.append(seconds)
                else:
                    os.kill(process.popen.pid, signal.SIGSTOP)
                    seconds = until_gone(cluster, name, incarnation, patience)
                    os.kill(process.popen.pid, signal.SIGCONT)
                    stopped.append(seconds)
                if seconds is None:
                    faults.append(f"{how} of {name} was not noticed within {patience:.1f} s")
                progress(f"{how:4} {name:10} noticed after "
                         f"{'-' if seconds is None else f'{1000 * seconds:.0f} ms'}; "
                         f"{load.completed} answers, {len(load.errors)} errors, "
                         f"{len(load.wrong)} wrong")
            harness.wait_for("the nodes to come back", cluster.ready, 60)
        faults += load.faults()
        settle(cluster, faults)
        after = metrics(cluster.admin("gateway"))
        grown = {name: value - before.get(name, 0) for name, value in after.items()
                 if value != before.get(name, 0) and "failover" in name}
        deaths = [name for name, process in cluster.processes.items() if not process.running()]
        if deaths:
            faults.append(f"ended by themselves: {deaths}")
    return {"minutes": minutes, "clients": clients, "kills": counts["kill"],
            "stops": counts["stop"], "completed": load.completed, "failed": len(load.errors),
            "wrong": len(load.wrong), "failovers": grown,
            "death_noticed": milliseconds([s for s in killed if s is not None]),
            "stop_noticed": milliseconds([s for s in stopped if s is not None]),
            "slowest_request_s": round(max(load.seconds, default=0), 2),
            "memory": memory.slopes(), "faults": faults}


def quiet(folder, minutes=10.0, clients=16, seed=1, config=None, progress=print):
    """Full load on every core and no fault: nothing may be taken for dead or stay suspect."""
    faults = []
    options = harness.merge({"prefill": {"engine": {"threads": 1}},
                             "decode": {"engine": {"threads": 1}}}, config or {})
    with Cluster(folder, prefill=2, decode=2, config=options) as cluster:
        load = Load(cluster, clients, seed=seed)
        lost = cluster.get("/baton/status")["membership"]["lost"]
        with MemoryWatch(cluster) as memory, load:
            begin = busy_begin = time.monotonic()
            ticks = busy_seconds()
            while time.monotonic() - begin < 60 * minutes:
                time.sleep(min(10.0, 6 * minutes))
                progress(f"{time.monotonic() - begin:.0f} s: {load.completed} answers, "
                         f"{len(load.errors)} errors")
            share = (busy_seconds() - ticks) / (time.monotonic() - busy_begin) / os.cpu_count()
        faults += load.faults()
        status = cluster.get("/baton/status")
        if status["membership"]["lost"] != lost:
            faults.append(f"{status['membership']['lost'] - lost} nodes were given up")
        kept = [node["name"] for node in status["nodes"] if node["state"] != "alive"]
        if kept:
            faults.append(f"still suspect: {kept}")
        samples = metrics(cluster.admin("gateway"))
        failovers = sum(value for name, value in samples.items()
                        if name.startswith("baton_failovers_total"))
        if failovers:
            faults.append(f"{failovers:.0f} failovers")
        settle(cluster, faults)
        log = pathlib.Path(cluster["gateway"].log).read_text(errors="replace")
    return {"minutes": minutes, "clients": clients, "completed": load.completed,
            "failed": len(load.errors), "wrong": len(load.wrong),
            "cpu_share": round(share, 3), "failovers": failovers,
            "suspected_for_a_moment": len(re.findall("misses heartbeats", log)),
            "memory": memory.slopes(), "faults": faults}


def busy_seconds():
    """Processor time that all processes together have used."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Leaver:
    """Asks by raw HTTP and leaves when told to."""

    def __init__(self, cluster, prompt, max_tokens, streamed):
        self.socket = socket.create_connection((cluster.host, cluster.api_port))
        body = json.dumps({"model": cluster.config["model"]["id"], "prompt": prompt,
                           "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                           "stream": streamed})
        self.socket.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                             f"application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())

    def leave(self):
        self.socket.close()


def steps(cluster):
    """Steps begun on all nodes, as the nodes themselves say now."""
    return {name: total(metrics(cluster.admin(name)), f"baton_{name.split('-')[0]}_step_seconds_count")
            for name in cluster.processes if name != "gateway"}


def cancels(folder, count=2000, at_once=8, words=1000, max_tokens=64, alone=40, seed=1, config=None,
            progress=print):
    """Clients that leave at a random moment of prompts of about 1000 tokens. First `alone` of them one
    by one, to count the steps that were begun after the client had left; then the others, together."""
    draw = random.Random(seed)
    faults, begun = [], {"prefill": [], "decode": []}
    options = harness.merge({"prefill": {"engine": {"threads": 1}, "chunk_tokens": 128},
                             "decode": {"engine": {"threads": 1}}}, config or {})
    with Cluster(folder, config=options) as cluster:
        prompts = [harness.words(words, 9000 + i) for i in range(24)]
        sizes = [cluster.complete(prompt, 1)["usage"]["prompt_tokens"] for prompt in prompts[:3]]
        begin = time.monotonic()
        cluster.complete(harness.words(words, 8999), max_tokens)
        whole = time.monotonic() - begin
        for number in range(alone):
            leaver = Leaver(cluster, harness.words(words, 20000 + number), max_tokens, number % 2 == 0)
            time.sleep(draw.uniform(0, whole))
            left = steps(cluster)
            leaver.leave()
            settle(cluster, faults, limit=20)
            for name, value in steps(cluster).items():
                begun[name.split("-")[0]].append(value - left[name])
        progress(f"{alone} alone: steps begun after the client had left: prefill at most "
                 f"{max(begun['prefill']):.0f}, decode at most {max(begun['decode']):.0f}")
        if max(begun["prefill"]) > 1:
            faults.append("a prefill node began more than one step after its client had left")
        lock, done = threading.Lock(), [0]

        def leave_often(number, share):
            mine = random.Random(seed * 100 + number)
            for i in range(share):
                leaver = Leaver(cluster, mine.choice(prompts) if i % 2 else
                                harness.words(words, mine.randrange(1 << 30)), max_tokens, i % 3 > 0)
                time.sleep(mine.uniform(0, 2 * whole))
                leaver.leave()
                with lock:
                    done[0] += 1
                    if done[0] % 100 == 0:
                        progress(f"{done[0]} of {count - alone} clients have left")

        share = max(1, (count - alone) // at_once)
        with MemoryWatch(cluster) as memory:
            threads = [threading.Thread(target=leave_often, args=(i, share)) for i in range(at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            begin = time.monotonic()
            settle(cluster, faults)
            rest = time.monotonic() - begin
        answer = cluster.complete("Hello", 4)
        if answer["usage"]["completion_tokens"] != 4:
            faults.append("the cluster does not serve any more")
        samples = metrics(cluster.admin("gateway"))
    return {"cancels": alone + at_once * share, "prompt_tokens": sizes,
            "steps_begun_after_leaving": {
                role: {"median": statistics.median(values), "most": max(values)}
                for role, values in begun.items()},
            "disconnects_counted": total(samples, "baton_client_disconnects_total"),
            "quiet_after_s": round(rest, 3), "memory": memory.slopes(), "faults": faults}
