"""Moves descriptors between two processes of this host with NIXL or Mooncake, for the comparison of
`baton bench transfer --peers`, which starts this and tells it when to take a turn.

    python transfer_loop.py nixl|mooncake tcp|shm BYTES COUNT

Prints "ready" once both processes are connected, and for each line "write" or "read" on its input
moves COUNT descriptors of BYTES bytes, none next to another at the other side, and prints
"landed SECONDS CPU_SECONDS": from posting the prepared transfer to its completion as the initiating
process knows it, and the processor time of both processes. The first turn of each kind is checked
byte by byte. A failure is one line "failed REASON".
"""
import ctypes
import mmap
import os
import subprocess
import sys
import time
import zlib


class Memory:
    """Host memory of COUNT descriptors, touched."""

    def __init__(self, size, count):
        self.size, self.count = size, count
        self.map = mmap.mmap(-1, size * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.fill(0)

    def fill(self, seed):
        for i in range(self.count):
            self.map[i * self.size:(i + 1) * self.size] = bytes([(i * 31 + seed) % 251]) * self.size

    def digest(self, backwards):
        order = reversed(range(self.count)) if backwards else range(self.count)
        value = 0
        for i in order:
            value = zlib.crc32(self.map[i * self.size:(i + 1) * self.size], value)
        return value

    def places(self, base=None):
        start = self.base if base is None else base
        return [start + i * self.size for i in range(self.count)]


class Nixl:
    def __init__(self, name, transport, memory):
        os.environ["UCX_TLS"] = "tcp" if transport == "tcp" else "shm,self"
        from nixl_cu12 import nixl_agent, nixl_agent_config
        self.memory = memory
        # The initiator polls by itself: a progress thread beside it only takes its processor (with
        # it NIXL was half as fast on two cores). The target needs one, its main thread waits.
        self.agent = nixl_agent(name, nixl_agent_config(
            enable_prog_thread=name.startswith("target"), backends=["UCX"]))
        self.agent.register_memory([(memory.base, memory.size * memory.count, 0, "")], "DRAM")

    def offer(self):
        return f"{self.memory.base} {self.agent.get_agent_metadata().hex()}"

    def connect(self, words):
        import numpy
        remote = self.agent.add_remote_agent(bytes.fromhex(words[1]))
        remote = remote.decode() if isinstance(remote, bytes) else remote
        size, count = self.memory.size, self.memory.count
        here = self.agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", [(place, size, 0) for place in self.memory.places()], "DRAM")
        there = self.agent.prep_xfer_dlist(
            remote, [(place, size, 0) for place in self.memory.places(int(words[0]))], "DRAM")
        forwards = numpy.arange(count, dtype=numpy.int32)
        backwards = forwards[::-1].copy()
        self.handles = {
            verb: self.agent.make_prepped_xfer(verb.upper(), here, forwards, there, backwards)
            for verb in ("write", "read")
        }

    def move(self, verb):
        handle = self.handles[verb]
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL ends with {state}")


class Mooncake:
    def __init__(self, name, transport, memory):
        if transport != "tcp":
            raise RuntimeError("Mooncake's wheel has no shared-memory transport for host memory")
        os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
        from mooncake.engine import TransferEngine
        self.memory = memory
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("Mooncake's engine does not start")
        if self.engine.register_memory(memory.base, memory.size * memory.count) != 0:
            raise RuntimeError("Mooncake does not register the memory")

    def offer(self):
        return f"{self.memory.base} 127.0.0.1:{self.engine.get_rpc_port()}"

    def connect(self, words):
        self.target = words[1]
        self.here = self.memory.places()
        self.there = self.memory.places(int(words[0]))[::-1]
        self.lengths = [self.memory.size] * self.memory.count

    def move(self, verb):
        run = (self.engine.batch_transfer_sync_write
               if verb == "write" else self.engine.batch_transfer_sync_read)
        if run(self.target, self.here, self.there, self.lengths) != 0:
            raise RuntimeError("Mooncake's transfer failed")


def take_half(second):
    """Keeps this process on one half of the processors, as Baton's two processes do."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus[len(cpus) // 2:] if second else cpus[:len(cpus) // 2])


def say(*words):
    print(*words, file=protocol, flush=True)


def target(engine, memory):
    say("offer", engine.offer())
    for line in sys.stdin:
        words = line.split()
        if words[0] == "cpu":
            say(time.process_time())
        elif words[0] == "fill":
            memory.fill(int(words[1]))
            say("filled")
        elif words[0] == "digest":
            say(memory.digest(backwards=True))


def initiator(engine, memory, child):
    def ask(*words):
        print(*words, file=child.stdin, flush=True)
        return child.stdout.readline().strip()

    offer = child.stdout.readline().split()
    if not offer or offer[0] != "offer":
        raise RuntimeError(" ".join(offer[1:]) or "the other process has died")
    engine.connect(offer[1:])
    for number, verb in enumerate(("write", "read"), 1):
        ask("fill", 100 * number)
        memory.fill(7 * number)
        engine.move(verb)
        if memory.digest(backwards=False) != int(ask("digest")):
            raise RuntimeError(f"the bytes of a {verb} are wrong")
    say("ready")
    for line in sys.stdin:
        verb = line.strip()
        cpu = time.process_time() + float(ask("cpu"))
        begin = time.perf_counter()
        engine.move(verb)
        seconds = time.perf_counter() - begin
        say("landed", seconds, time.process_time() + float(ask("cpu")) - cpu)
    child.stdin.close()
    child.wait()


def main():
    which, transport, size, count = sys.argv[1:5]
    is_target = len(sys.argv) > 5
    child = None if is_target else subprocess.Popen(
        [sys.executable, *sys.argv, "target"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if which == "nixl":  # Mooncake's pool of threads is slower on a part of the processors
        take_half(second=is_target)
    memory = Memory(int(size), int(count))
    try:
        kind = {"nixl": Nixl, "mooncake": Mooncake}[which]
        engine = kind(f"{'target' if is_target else 'initiator'}-{os.getpid()}", transport, memory)
        if is_target:
            target(engine, memory)
        else:
            initiator(engine, memory, child)
    except Exception as error:  # told to whoever started this, whatever it is
        say("failed", " ".join(str(error).split()) or type(error).__name__)
    os._exit(0)  # neither library's threads always end


# What the libraries print themselves goes to the log, not into the conversation.
protocol = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
main()
