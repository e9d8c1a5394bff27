#!/usr/bin/env python3
"""Counts the results that tools/test left in a folder and prints the closing line.

Reads ctest's JUnit file, one GoogleTest XML file a program, and pytest's JUnit file. A program that
ctest calls failed but whose XML shows no failed case (a crash, a time limit) counts as one failure.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.bad = []
        self.left_out = []

    def add(self, name, state, reason=""):
        if state == "passed":
            self.passed += 1
        elif state == "skipped":
            self.skipped += 1
            self.left_out.append(f"{name}: {reason}" if reason else name)
        else:
            self.failed += 1
            self.bad.append(name)


def state_of(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") == "skipped":
        return "skipped"
    return "passed"


def count_program(count, name, program_state, xml):
    """One GoogleTest program, or one plain ctest when it wrote no XML."""
    if not xml.exists():
        count.add(name, program_state)
        return
    before = count.failed
    try:
        for case in ElementTree.parse(xml).iter("testcase"):
            if case.get("status") == "notrun":
                continue
            message = case.find("skipped")
            reason = (message.get("message") or "").strip().split("\n")[-1] if message is not None else ""
            count.add(f"{name}: {case.get('classname')}.{case.get('name')}", state_of(case), reason)
    except ElementTree.ParseError:
        pass
    if program_state == "failed" and count.failed == before:
        count.add(f"{name} (ended badly)", "failed")


def main(folder):
    count = Count()
    ctest = folder / "ctest.xml"
    if ctest.exists():
        for case in ElementTree.parse(ctest).iter("testcase"):
            name = case.get("name")
            state = {"run": "passed", "disabled": "skipped", "notrun": "skipped"}.get(case.get("status"), "failed")
            count_program(count, name, state, folder / "gtest" / f"{name}.xml")
    else:
        count.add("ctest wrote no results", "failed")
    pytest = folder / "pytest.xml"
    if pytest.exists():
        for case in ElementTree.parse(pytest).iter("testcase"):
            reason = case.find("skipped")
            count.add(f"{case.get('classname')}::{case.get('name')}", state_of(case),
                      (reason.get("message") or "") if reason is not None else "")
    else:
        count.add("pytest wrote no results", "failed")
    for line in count.left_out:
        print(f"skipped: {line}")
    for line in count.bad:
        print(f"FAILED: {line}")
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
