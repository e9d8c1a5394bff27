#!/usr/bin/env python3
"""Writes engine/tokenizer/unicode_table.cpp, the classes of code points that pre-tokenizers ask for, and
engine/tokenizer/nfc_table.cpp, the data of normalization form C.

Data: Unicode 16.0 through the PyPI package unicodedata2==16.0.0, the version that the regular
expressions of the `tokenizers` package know.
Usage: make_unicode_table.py, from the root of the tree
"""
import unicodedata2

assert unicodedata2.unidata_version == "16.0.0"
# Matches the order of kClasses in char_class.cpp.
CLASSES = {"Lu": 1, "Lt": 1, "Ll": 2, "Lm": 3, "Lo": 3, "N": 4, "M": 5, "P": 6, "S": 7}
SPACE = set([*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])


def char_class(code):
    if code in SPACE:
        return 8
    category = unicodedata2.category(chr(code))
    return CLASSES.get(category, CLASSES.get(category[0], 0))


# The `tokenizers` package normalizes by Unicode 9.0: characters with a combining class or a decomposition
# that came later are plain characters to it.
LATER = [
    (0x7fd, 0x7fd), (0x897, 0x89f), (0x8ca, 0x8d3), (0x9fe, 0x9fe), (0xc3c, 0xc3c), (0xd3b, 0xd3c), (0xeba, 0xeba),
    (0x1715, 0x1715), (0x1abf, 0x1ace), (0x1df6, 0x1dfa), (0xa82c, 0xa82c), (0x105c9, 0x105e4), (0x10d24, 0x10d27),
    (0x10d69, 0x10d6d), (0x10eab, 0x10eff), (0x10f46, 0x10f85), (0x11070, 0x11070), (0x1133b, 0x1133b),
    (0x11380, 0x113d0), (0x1145e, 0x1145e), (0x11839, 0x1183a), (0x11938, 0x11943), (0x119e0, 0x119e0),
    (0x11a34, 0x11a47), (0x11a99, 0x11a99), (0x11d42, 0x11d45), (0x11d97, 0x11d97), (0x11f41, 0x11f42),
    (0x16121, 0x1612f), (0x16d68, 0x16d6a), (0x16ff0, 0x16ff1), (0x1e08f, 0x1e08f), (0x1e130, 0x1e136),
    (0x1e2ae, 0x1e2ef), (0x1e4ec, 0x1e4ef), (0x1e5ee, 0x1e5ef)]


def is_later(code):
    return any(low <= code <= high for low, high in LATER)


def decompositions():
    """(code, first, second or 0, whether the two make the one again), without Hangul."""
    found = []
    for code in range(0x110000):
        parts = unicodedata2.decomposition(chr(code)).split()
        if parts and parts[0][0] != "<" and not is_later(code):
            first, second = int(parts[0], 16), int(parts[1], 16) if len(parts) == 2 else 0
            found.append((code, first, second, unicodedata2.normalize("NFC", chr(code)) == chr(code)))
    return found


PAIRS = decompositions()
SECOND = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3), *(second for _, _, second, again in PAIRS if again)}
CHANGING = {code for code, _, _, again in PAIRS if not again}


def nfc_class(code):
    """Combining class, plus 256 when the character may not stand in normalized text as it is."""
    if is_later(code):
        return 0
    return unicodedata2.combining(chr(code)) + 256 * (code in SECOND or code in CHANGING)


def runs_of(values, shift):
    runs, last = [], None
    for code in range(0x110000):
        found = values(code)
        if found != last:
            runs.append((code << shift) | found)
            last = found
    return runs


def runs_text(name, runs):
    lines = ["  " + ",".join(f"{value:#x}" for value in runs[start:start + 12]) + "," for start in range(0, len(runs), 12)]
    return "\n".join([f"constexpr std::uint32_t {name}[] = {{", *lines, "};"])


def pairs_text(name):
    lines = ["  " + ",".join(f"{{{c:#x},{a:#x},{b:#x},{int(again)}}}" for c, a, b, again in PAIRS[start:start + 6]) + ","
             for start in range(0, len(PAIRS), 6)]
    return "\n".join([f"constexpr Decomposition {name}[] = {{", *lines, "};"])


def write(file, what, header, tables, functions):
    with open(f"engine/tokenizer/{file}", "w") as out:
        out.write(f"""// {what}
// Written by tools/golden/make_unicode_table.py; do not edit.
#include "engine/tokenizer/{header}"

namespace baton::engine {{
namespace {{

// clang-format off
{tables}
// clang-format on

}}  // namespace

{functions}

}}  // namespace baton::engine
""")


def function(returned, name, table):
    return f"std::span<const {returned}> {name}() {{\n  return {table};\n}}"


write("unicode_table.cpp", "Runs of code points of one class, by Unicode 16.0; the entries: char_class.h.", "char_class.h",
      runs_text("kCharClasses", runs_of(char_class, 4)), function("std::uint32_t", "char_class_runs", "kCharClasses"))
write("nfc_table.cpp", "Combining classes and decompositions, by Unicode 9.0; the entries: nfc.h.", "nfc.h",
      runs_text("kNfcClasses", runs_of(nfc_class, 9)) + "\n" + pairs_text("kDecompositions"),
      function("std::uint32_t", "nfc_class_runs", "kNfcClasses") + "\n\n" +
      function("Decomposition", "decompositions", "kDecompositions"))
