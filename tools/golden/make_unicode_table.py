#!/usr/bin/env python3
"""Writes engine/tokenizer/unicode_table.cpp: the classes of code points that pre-tokenizers ask for.

Data: Unicode 16.0 through the PyPI package unicodedata2==16.0.0, the version that the regular
expressions of the `tokenizers` package know.
Usage: make_unicode_table.py > engine/tokenizer/unicode_table.cpp
"""
import unicodedata2

assert unicodedata2.unidata_version == "16.0.0"
# Matches the order of CharClass in char_class.h.
CLASSES = {"L": 1, "N": 2, "M": 3, "P": 4, "S": 5}
SPACE = set([*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])


def char_class(code):
    if code in SPACE:
        return 6
    return CLASSES.get(unicodedata2.category(chr(code))[0], 0)


runs, last = [], None
for code in range(0x110000):
    found = char_class(code)
    if found != last:
        runs.append((code << 3) | found)
        last = found
print("""// Runs of code points of one class: each entry is the first code point times 8 plus the class.
// Written by tools/golden/make_unicode_table.py from Unicode 16.0; do not edit.
#include "engine/tokenizer/char_class.h"

namespace baton::engine {
namespace {

// clang-format off
constexpr std::uint32_t kRuns[] = {""")
for start in range(0, len(runs), 12):
    print("  " + ",".join(f"{value:#x}" for value in runs[start:start + 12]) + ",")
print("""};
// clang-format on

}  // namespace

std::span<const std::uint32_t> char_class_runs() { return kRuns; }

}  // namespace baton::engine""")
