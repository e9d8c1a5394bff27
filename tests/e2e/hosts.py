"""Several "hosts" on this machine: network namespaces joined by veth pairs and a bridge."""
import ctypes
import os
import subprocess
import uuid

import pytest


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


class Hosts:
    """Namespaces with addresses 10.77.N.1, .2, … on one bridge in a namespace of its own."""

    def __init__(self, count):
        tag = uuid.uuid4().hex[:5]
        self.switch = f"baton-{tag}-s"
        self.names = [f"baton-{tag}-{i}" for i in range(count)]
        self.addresses = [f"10.77.{int(tag[:2], 16)}.{i + 1}" for i in range(count)]
        self.tag = tag

    def __enter__(self):
        self.must("ip", "netns", "add", self.switch)
        self.must("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        self.must("ip", "-n", self.switch, "link", "set", "br0", "up")
        for i, (name, address) in enumerate(zip(self.names, self.addresses)):
            self.must("ip", "netns", "add", name)
            self.must("ip", "-n", name, "link", "set", "lo", "up")
            self.must("ip", "-n", self.switch, "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0",
                      "netns", name)
            self.must("ip", "-n", self.switch, "link", "set", f"p{i}", "master", "br0", "up")
            self.must("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            self.must("ip", "-n", name, "link", "set", "eth0", "up")
        return self

    def must(self, *command):
        done = run(*command)
        if done.returncode != 0:
            self.__exit__()
            pytest.skip(f"no network namespaces here: {' '.join(command)}: {done.stderr.strip()}")

    def __exit__(self, *_):
        for name in (*self.names, self.switch):
            run("ip", "netns", "del", name)


class inside:
    """This thread, and what it starts, is in the namespace meanwhile."""

    def __init__(self, name):
        self.there = f"/run/netns/{name}"

    def __enter__(self):
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(self.there, os.O_RDONLY)
        self.enter(there)
        os.close(there)

    def __exit__(self, *_):
        self.enter(self.home)
        os.close(self.home)

    @staticmethod
    def enter(namespace):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")
