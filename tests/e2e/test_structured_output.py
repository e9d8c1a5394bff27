"""Answers that must be of a schema, an expression or a list of choices, over real processes at
temperature 1: every one that stops is what was asked for."""
import concurrent.futures
import json
import re

import jsonschema
import pytest
import schemas
from harness import Cluster, HttpError

LIMIT = 1024  # tokens of an answer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    config = {"gateway": {"queue_limit": 512}}
    with Cluster(tmp_path_factory.mktemp("structured"), config=config) as running:
        yield running


def ask(cluster, seed, **fields):
    """Text and finish reason of one answer."""
    answer = cluster.post("/v1/chat/completions", {
        "model": cluster.config["model"]["id"], "temperature": 1, "seed": seed, "max_tokens": LIMIT,
        "messages": [{"role": "user", "content": f"Invent an example, number {seed}, as JSON."}], **fields})
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def check_schemas(cluster, numbers):
    """Asks for each; says how many stopped, which must be valid."""
    def one(number):
        schema = schemas.schema(number)
        text, finish = ask(cluster, number, response_format={
            "type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": schema}})
        if finish == "stop":
            value = json.loads(text)
            jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)
        else:
            assert finish == "length", (number, finish)
        return finish == "stop"
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return sum(pool.map(one, numbers))


def test_answers_are_valid(cluster):
    assert check_schemas(cluster, range(10)) >= 9


@pytest.mark.long
def test_answers_of_200_schemas_are_valid(cluster):
    stopped = check_schemas(cluster, range(200))
    print(f"{stopped} of 200 stopped within {LIMIT} tokens")
    assert stopped >= 190


def test_other_kinds(cluster):
    text, finish = ask(cluster, 1, guided_regex="[A-Z][a-z]{2,9} (is|was) [0-9]{1,3}")
    assert finish == "stop" and re.fullmatch("[A-Z][a-z]{2,9} (is|was) [0-9]{1,3}", text), text
    text, _ = ask(cluster, 2, structured_outputs={"choice": ["a \"b\"", "c\\d", "é"]})
    assert text in ("a \"b\"", "c\\d", "é")
    text, _ = ask(cluster, 3, guided_grammar='root ::= word ("," word){2}\nword ::= "ba" | "na"')
    assert re.fullmatch("(ba|na)(,(ba|na)){2}", text), text
    text, finish = ask(cluster, 4, response_format={"type": "json_object"})
    assert finish == "length" or isinstance(json.loads(text), dict)


def test_what_cannot_be_held_to_is_refused_by_name(cluster):
    for fields, param, name in [
            ({"guided_json": {"type": "object", "properties": {"a": {"not": {}}}}}, "guided_json", "'not'"),
            ({"guided_regex": "a(?=b)"}, "guided_regex", "Lookahead"),
            ({"guided_regex": "((a{1,99}){1,99}){1,99}"}, "guided_regex", "too large"),
            ({"response_format": {"type": "json_schema", "json_schema": {
                "name": "x", "schema": {"type": "array", "uniqueItems": True}}}},
             "response_format", "'uniqueItems'")]:
        with pytest.raises(HttpError) as refused:
            ask(cluster, 1, **fields)
        assert refused.value.status == 400
        assert refused.value.error["param"] == param, refused.value.error
        assert name in refused.value.error["message"], refused.value.error
