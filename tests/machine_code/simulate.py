"""Runs avx512_guest in a simulated processor (Bochs, as the package bochscpu-python) and prints its hashes,
one a line. test_machine_code.py starts it with processor_model.so preloaded."""
import struct
import sys

import bochscpu
import bochscpu.cpu
import bochscpu.memory

PAGE = 4096
TABLES = 0x1000000  # page tables, above the program
STACK = 0x800000
STACK_PAGES = 64


class Machine:
    """Memory where virtual is physical, and one processor in 64-bit mode."""

    def __init__(self):
        self.session = bochscpu.Session()
        self.session.missing_page_handler = self.missing
        self.fault = None
        self.page(TABLES, struct.pack("<Q", (TABLES + PAGE) | 3))
        self.page(TABLES + PAGE, struct.pack("<Q", (TABLES + 2 * PAGE) | 3))
        self.page(TABLES + 2 * PAGE, struct.pack("<512Q", *((i << 21) | 0x83 for i in range(512))))

    def page(self, address, data=b""):
        bochscpu.memory.page_insert(address, bochscpu.memory.allocate_host_page())
        bochscpu.memory.phy_write(address, list(data.ljust(PAGE, b"\0")))

    def load(self, elf):
        """Gives the entry."""
        entry, headers = struct.unpack_from("<QQ", elf, 24)
        pages = {}
        for i in range(struct.unpack_from("<H", elf, 56)[0]):
            kind, _, offset, address, _, in_file, in_memory, _ = struct.unpack_from("<IIQQQQQQ", elf, headers + 56 * i)
            if kind != 1:  # PT_LOAD
                continue
            for place in range(address & -PAGE, address + in_memory, PAGE):
                page = pages.setdefault(place, bytearray(PAGE))
                first, end = max(place, address), min(place + PAGE, address + in_file)
                if first < end:
                    page[first - place:end - place] = elf[offset + first - address:offset + end - address]
        for place, data in pages.items():
            self.page(place, bytes(data))
        for i in range(STACK_PAGES):
            self.page(STACK - (i + 1) * PAGE)
        return entry

    def missing(self, address):
        self.stop(f"an access to {address:#x}, where nothing is")

    def stop(self, fault=None):
        self.fault = self.fault or fault
        self.session.stop()

    def run(self, entry):
        state = bochscpu.State()
        bochscpu.cpu.set_long_mode(state)
        state.cr4 |= 1 << 9 | 1 << 10 | 1 << 18  # SSE, its exceptions, XSAVE
        state.cr3 = TABLES
        state.rip, state.rsp, state.rflags = entry, STACK, 2
        state.mxcsr, state.mxcsr_mask = 0x1F80, 0xFFFF
        for name in ("cs", "ds", "es", "ss", "fs", "gs"):
            segment = bochscpu.Segment()
            segment.present, segment.base, segment.limit = True, 0, 0xFFFFFFFF
            segment.selector, segment.attr = (0x10, 0xA09B) if name == "cs" else (0x18, 0xC093)
            setattr(state, name, segment)
        hook = bochscpu.Hook()
        hook.hlt = lambda *_: self.stop()
        hook.exception = lambda session, cpu, vector, error: self.stop(
            f"exception {vector} at {self.session.cpu.state.rip:#x}")
        self.session.cpu.state = state
        self.session.run([hook])
        if self.fault:
            sys.exit(f"simulate: {self.fault}")

    def words(self, address, count):
        return struct.unpack(f"<{count}Q", bytes(bochscpu.memory.virt_read(TABLES, address, 8 * count)))


def main():
    program, hashes, count = sys.argv[1], int(sys.argv[2], 16), int(sys.argv[3], 16)
    machine = Machine()
    with open(program, "rb") as file:
        entry = machine.load(file.read())
    machine.run(entry)
    for value in machine.words(hashes, machine.words(count, 1)[0]):
        print(f"{value:016x}")


main()
