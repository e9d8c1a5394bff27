"""A log that nobody reads stops no program: it goes on serving, counts what it drops, tells it once somebody
reads, and ends on SIGTERM."""
import os
import re
import signal
import subprocess
import urllib.request

from harness import ROOT, Cluster, die_with_parent, words


def start_into_a_pipe(process):
    """Gives the end to read from."""
    read, write = os.pipe()
    process.popen = subprocess.Popen(process.command, stdout=subprocess.DEVNULL, stderr=write,
                                     stdin=subprocess.DEVNULL, cwd=ROOT, preexec_fn=die_with_parent)
    os.close(write)
    return read


class Unread(Cluster):
    def __enter__(self):
        self.pipes = {}
        for name, process in self.processes.items():
            process.start = lambda name=name, process=process: self.pipes.update({name: start_into_a_pipe(process)})
        return super().__enter__()

    def dropped(self, name):
        text = urllib.request.urlopen(f"http://{self.admin(name)}/metrics", timeout=30).read().decode()
        return float(re.search(r"^baton_log_lines_dropped_total (\S+)$", text, re.M).group(1))


def read_until(pipe, pattern):
    text = ""
    while not (found := re.search(pattern, text)):
        more = os.read(pipe, 65536).decode()
        assert more, f"{pattern} is not in the log:\n{text[-2000:]}"
        text += more
    return found


def test_logs_that_nobody_reads(tmp_path):
    with Unread(tmp_path) as cluster:
        before = cluster.complete(words(20), 8)["choices"][0]["text"]
        # Each SIGHUP is a line or more.
        for name, process in cluster.processes.items():
            while cluster.dropped(name) == 0:
                for _ in range(500):
                    process.popen.send_signal(signal.SIGHUP)
        assert cluster.complete(words(20), 8)["choices"][0]["text"] == before
        read_until(cluster.pipes["gateway"], r"warn  gateway log lines dropped here: \d+")
        # Those of the nodes stay as they are, and do not keep them from ending with status 0.
