#!/usr/bin/env python3
"""JSON schemas for tests of structured output: nested objects, enums, patterns, formats, references,
choices and arrays, drawn from a seed, so that a number names the same schema everywhere. As a
program it prints 200 of them, one a line."""
import json
import random
import sys

WORDS = ("name city color size kind title status note price count level email date code tag owner "
         "unit score active items parent address street zip year month label source target").split()
VALUES = "red green blue small large open closed north south east west low high new old".split()
PATTERNS = ["^[A-Z]{3}-[0-9]{4}$", "^[a-z]{2,8}$", "^(yes|no|maybe)$", "^#[0-9a-f]{6}$",
            "^v[0-9]+\\.[0-9]+$", "^[A-Z][a-z]+( [A-Z][a-z]+)?$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email", "hostname"]


def text(draw):
    kind = draw.randrange(5)
    if kind == 0:
        return {"type": "string", "maxLength": draw.choice([8, 20, 40])}
    if kind == 1:
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    if kind == 2:
        return {"type": "string", "format": draw.choice(FORMATS)}
    if kind == 3:
        return {"type": "string", "enum": draw.sample(VALUES, draw.randint(2, 5))}
    return {"type": "string", "minLength": 1, "maxLength": 30}


def number(draw):
    if draw.random() < 0.5:
        low = draw.randrange(-20, 20)
        return {"type": "integer", "minimum": low, "maximum": low + draw.randrange(1, 500)}
    return {"type": "number", "minimum": 0, "exclusiveMaximum": draw.choice([1, 10, 100])}


def scalar(draw):
    make = draw.choice([text, text, number, lambda _: {"type": "boolean"},
                        lambda _: {"enum": [1, "one", None, True]},
                        lambda _: {"const": draw.choice(VALUES)}])
    return make(draw)


def array(draw, depth, names):
    if draw.random() < 0.2:
        return {"type": "array", "prefixItems": [scalar(draw) for _ in range(draw.randint(1, 3))],
                "items": False}
    least = draw.randint(0, 2)
    return {"type": "array", "items": value(draw, depth - 1, names), "minItems": least,
            "maxItems": least + draw.randint(1, 3)}


def thing(draw, depth, names):
    keys = draw.sample(WORDS, draw.randint(1, 4))
    schema = {"type": "object", "properties": {key: value(draw, depth - 1, names) for key in keys},
              "required": draw.sample(keys, draw.randint(1, len(keys)))}
    if draw.random() < 0.5:
        schema["additionalProperties"] = False
    return schema


def choice(draw, depth, names):
    if draw.random() < 0.3:
        kinds = draw.sample(VALUES, 2)
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind},
                                                            "value": scalar(draw)},
                           "required": ["kind", "value"]} for kind in kinds]}
    return {"anyOf": [{"type": "null"}, value(draw, depth - 1, names)]}


def value(draw, depth, names):
    if depth <= 0:
        return scalar(draw)
    if names and draw.random() < 0.15:
        return {"$ref": "#/$defs/" + draw.choice(names)}
    return draw.choice([lambda: scalar(draw), lambda: scalar(draw), lambda: array(draw, depth, names),
                        lambda: thing(draw, depth, names), lambda: choice(draw, depth, names)])()


def schema(seed):
    """The schema of that number."""
    draw = random.Random(f"schema {seed}")
    names = draw.sample(["point", "person", "item"], draw.randint(0, 2))
    root = thing(draw, draw.randint(1, 3), names)
    if names:
        # They do not name each other, so that every value ends.
        root["$defs"] = {name: thing(draw, 1, []) for name in names}
    if draw.random() < 0.1:
        root["title"] = "A thing"
        root["description"] = "Notes are allowed"
    return root


if __name__ == "__main__":
    for number_of in range(int(sys.argv[1]) if len(sys.argv) > 1 else 200):
        print(json.dumps(schema(number_of)))
