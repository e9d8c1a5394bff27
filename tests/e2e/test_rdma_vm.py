"""KV over RDMA verbs, in a virtual machine with Soft-RoCE: tools/rdma-vm boots it. The guest's CPU is
emulated, so the cases take minutes; nothing here depends on how long anything takes."""
import os
import re
import shutil
import subprocess

import pytest
from harness import ROOT

TOOL = ROOT / "tools" / "rdma-vm"

pytestmark = [
    pytest.mark.skipif(bool(os.environ.get("BATON_SKIP_VM")), reason="left out: tools/test --skip-vm"),
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"),
                       reason="no QEMU here: apt-get install qemu-system-x86"),
]


def rdma_vm(*arguments):
    done = subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_the_transfer_keeps_its_promises_over_verbs():
    status, output = rdma_vm("conformance", "--timeout", "480")
    assert status == 0, output[-6000:]
    passed = re.findall(r"\[       OK \] Paths/(\w+)\.\w+/rdma ", output)
    assert {"Conformance", "Hostile", "Processes"} <= set(passed) and len(passed) > 25, output[-6000:]
    assert "== two hosts" in output
    assert "[  FAILED  ]" not in output


def test_a_request_over_verbs_equals_the_one_over_tcp():
    status, output = rdma_vm("request", "--timeout", "240")
    assert status == 0, output[-6000:]
    found = re.search(r"^request over rc_verbs: 16 tokens, equal to those over tcp; (\d+) bytes of KV moved "
                      r"in (\d+) blocks$", output, re.M)
    assert found, output[-6000:]
    assert int(found[2]) >= 3 and int(found[1]) == int(found[2]) * 8192


def test_a_node_killed_at_work_over_verbs_changes_no_text():
    status, output = rdma_vm("kills", "--timeout", "300")
    assert status == 0, output[-6000:]
    assert re.search(r"^killed decode-\d: the text is the same$", output, re.M)
    assert re.search(r"^killed prefill-\d: the text is the same$", output, re.M)


def test_a_guest_that_hangs_is_killed_and_its_console_shown():
    status, output = rdma_vm("request", "--timeout", "1")  # less than any boot takes
    assert status == 1
    assert "did not end within 1 s; the end of its console:" in output


def test_what_is_not_built_is_named(tmp_path):
    status, output = rdma_vm("request", "--build", str(tmp_path))
    assert status == 1
    assert f"{tmp_path}/bin/baton-gateway is not built" in output
