"""The official OpenAI Python SDK against Baton: sync and async, streamed and whole, errors and
retries.

Runs against scripted nodes (build/release/bin/scripted_cluster, started here) and, when
BATON_BASE_URL names a running server, against that server too; checks that need a scripted answer
are skipped there."""
import asyncio
import json
import os
import subprocess

import httpx
import openai
import pydantic
import pytest

from harness import BIN, die_with_parent, wait_for


class Target:
    def __init__(self, base_url, scripted):
        self.base_url, self.scripted = base_url, scripted
        self.client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=60)
        wait_for("a ready server", lambda: httpx.get(f"{self.root}/readyz").status_code == 200)
        self.model = self.client.models.list().data[0].id

    @property
    def root(self):
        return self.base_url.removesuffix("/v1")

    def async_client(self):
        return openai.AsyncOpenAI(base_url=self.base_url, api_key="none", max_retries=0, timeout=60)

    def ask(self, text="hi", **more):
        return self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], **more)


RUNNING = os.environ.get("BATON_BASE_URL")


@pytest.fixture(scope="module", params=["scripted"] + (["running"] if RUNNING else []))
def target(request):
    if request.param == "running":
        yield Target(RUNNING, scripted=False)
        return
    process = subprocess.Popen([BIN / "scripted_cluster", "--reasoning", "think"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    yield Target(process.stdout.readline().strip(), scripted=True)
    process.stdin.close()
    assert process.wait(10) == 0


@pytest.fixture
def scripted(target):
    if not target.scripted:
        pytest.skip("needs scripted nodes")
    return target


@pytest.fixture
def running(target):
    if target.scripted:
        pytest.skip("needs a real model")
    return target


def test_models(target):
    model = target.client.models.retrieve(target.model)
    assert model.id == target.model and model.object == "model" and model.created > 0


def test_whole_chat(target):
    answer = target.ask(max_tokens=8, temperature=0)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 1 <= answer.usage.completion_tokens <= 8
    assert answer.usage.prompt_tokens_details.cached_tokens < answer.usage.prompt_tokens


def test_streamed_chat_equals_whole(target):
    whole = target.ask(max_tokens=8, temperature=0)
    chunks = list(target.ask(max_tokens=8, temperature=0, stream=True,
                             stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens <= 8
    assert all(chunk.usage is None for chunk in chunks[:-1])
    reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    assert reasons[-1] == whole.choices[0].finish_reason
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content


def test_no_usage_unless_asked(target):
    assert all(chunk.usage is None and chunk.choices
               for chunk in target.ask(max_tokens=4, stream=True))


def test_stream_helper(scripted):
    with scripted.client.chat.completions.stream(
            model=scripted.model,
            messages=[{"role": "user", "content": "say:one two"}]) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text == "one two" == final.choices[0].message.content


def test_async_streams_at_once(target):
    async def one(client, i):
        stream = await client.chat.completions.create(
            model=target.model, max_tokens=4, stream=True, temperature=0,
            messages=[{"role": "user", "content": f"say:answer {i}"}])
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def run():
        async with target.async_client() as client:
            return await asyncio.gather(*(one(client, i) for i in range(8)))

    texts = asyncio.run(run())
    if target.scripted:
        assert texts == ["answ"] * 8


def test_completions(target):
    answer = target.client.completions.create(model=target.model, prompt="Once", max_tokens=3)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.usage.completion_tokens <= 3
    streamed = list(target.client.completions.create(
        model=target.model, prompt="Once", max_tokens=3, stream=True))
    assert streamed[-1].choices[0].finish_reason in ("stop", "length")


def test_choices(target):
    answer = target.ask("Say something.", n=3, max_tokens=6, temperature=1.0, seed=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage.completion_tokens <= 18
    alone = target.ask("Say something.", max_tokens=6, temperature=1.0, seed=3)
    assert alone.choices[0].message.content == answer.choices[0].message.content
    assert alone.usage.prompt_tokens == answer.usage.prompt_tokens
    texts = {}
    for chunk in target.ask("Say something.", n=3, max_tokens=6, temperature=1.0, seed=3, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    assert [texts[i] for i in range(3)] == [choice.message.content for choice in answer.choices]


def test_lists_of_prompts(target):
    one, two = "say:first", "say:second"
    answer = target.client.completions.create(model=target.model, prompt=[one, two], n=2,
                                              max_tokens=4, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    for prompt, choices in ((one, answer.choices[:2]), (two, answer.choices[2:])):
        alone = target.client.completions.create(model=target.model, prompt=prompt, max_tokens=4,
                                                 temperature=0)
        assert all(choice.text == alone.choices[0].text for choice in choices)
    ids = target.client.completions.create(model=target.model, prompt=[[65, 66], [67]], max_tokens=2)
    assert len(ids.choices) == 2 and ids.usage.prompt_tokens == 3


def test_token_id_prompt(target):
    answer = target.client.completions.create(
        model=target.model, prompt=[65, 66, 67], max_tokens=2,
        extra_body={"return_token_ids": True, "ignore_eos": True})
    assert answer.choices[0].prompt_token_ids == [65, 66, 67]
    assert len(answer.choices[0].token_ids) == 2
    assert answer.usage.prompt_tokens == 3


def test_logprobs(target):
    answer = target.ask(max_tokens=2, logprobs=True, top_logprobs=2, temperature=0)
    entries = answer.choices[0].logprobs.content
    assert entries and entries[0].logprob <= 0 and len(entries[0].top_logprobs) == 2
    assert bytes(entries[0].bytes).decode(errors="replace") == entries[0].token


def test_echo_scores_the_prompt(target):
    answer = target.client.completions.create(model=target.model, prompt="Once upon a time", echo=True,
                                              logprobs=2, max_tokens=0, temperature=0)
    choice = answer.choices[0]
    assert choice.text == "Once upon a time" and answer.usage.completion_tokens == 0
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
    assert len(choice.logprobs.tokens) == answer.usage.prompt_tokens
    again = target.client.completions.create(model=target.model, prompt="Once upon a time", max_tokens=1,
                                             extra_body={"prompt_logprobs": 0})
    told = [next(iter(entry.values()))["logprob"] for entry in again.choices[0].prompt_logprobs[1:]]
    assert told == choice.logprobs.token_logprobs[1:]


def test_bias_bars_and_forces(running):
    free = running.ask("Name a colour.", max_tokens=1, temperature=0, extra_body={"return_token_ids": True})
    token = free.choices[0].token_ids[0]
    barred = running.ask("Name a colour.", max_tokens=1, temperature=0, logit_bias={str(token): -100},
                         extra_body={"return_token_ids": True})
    assert barred.choices[0].token_ids[0] != token
    forced = running.ask("Name a colour.", max_tokens=2, temperature=0, logit_bias={"300": 100},
                         extra_body={"return_token_ids": True})
    assert forced.choices[0].token_ids == [300, 300]


def test_responses(target):
    answer = target.client.responses.create(model=target.model, input="say:one two", temperature=0,
                                            instructions="Be brief.", max_output_tokens=16)
    assert answer.object == "response" and answer.status in ("completed", "incomplete")
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens <= 16
    with target.client.responses.stream(model=target.model, input="say:one two", temperature=0,
                                        instructions="Be brief.", max_output_tokens=16) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert events[0].type == "response.created"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == final.output_text == answer.output_text
    if target.scripted:
        assert answer.output_text == "one two" and answer.status == "completed"


WEATHER = {"type": "function", "name": "weather", "description": "of a place", "strict": True,
           "parameters": {"type": "object", "properties": {"place": {"type": "string"}},
                          "required": ["place"], "additionalProperties": False}}
CALL = 'say:<tool_call>\n{"name": "weather", "arguments": {"place": "Bern"}}\n</tool_call>'


def test_responses_call_tools(scripted):
    answer = scripted.client.responses.create(model=scripted.model, input=CALL, tools=[WEATHER])
    call, = answer.output
    assert call.type == "function_call" and call.name == "weather" and call.status == "completed"
    assert json.loads(call.arguments) == {"place": "Bern"}
    # What came goes back as it is, with the result.
    turns = [{"role": "user", "content": "hi"}, *answer.output,
             {"type": "function_call_output", "call_id": call.call_id, "output": "say:sunny"}]
    after = scripted.client.responses.create(model=scripted.model, input=turns, tools=[WEATHER])
    assert after.output_text.startswith("sunny")  # what follows is the template's


def test_streamed_responses_call_tools(scripted):
    with scripted.client.responses.stream(model=scripted.model, input=CALL, tools=[WEATHER]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output[0].parsed_arguments == {"place": "Bern"}
    deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    assert "".join(event.delta for event in deltas) == done.arguments == final.output[0].arguments
    assert done.item_id == final.output[0].id


def test_forced_tools_of_responses(target):
    answer = target.client.responses.create(
        model=target.model, input=CALL, tools=[WEATHER], max_output_tokens=200, temperature=0,
        tool_choice={"type": "function", "name": "weather"})
    if answer.status == "completed":
        call = next(item for item in answer.output if item.type == "function_call")
        assert set(json.loads(call.arguments)) == {"place"}
    else:
        assert answer.incomplete_details.reason == "max_output_tokens"


class Person(pydantic.BaseModel):
    name: str
    age: int


def test_responses_parse(scripted):
    answer = scripted.client.responses.parse(model=scripted.model, text_format=Person,
                                             input='say:{"name": "Ada", "age": 36}')
    assert answer.output_parsed == Person(name="Ada", age=36)


def test_responses_parse_of_a_real_model(running):
    answer = running.client.responses.parse(model=running.model, text_format=Person, temperature=0,
                                            max_output_tokens=200, input="Ada is 36. Who is she?")
    if answer.status == "completed":
        assert isinstance(answer.output_parsed, Person)


def test_reasoning_of_responses(scripted):
    answer = scripted.client.responses.create(model=scripted.model, input="say:<think>hm</think>yes")
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text == "hm" and answer.output_text == "yes"
    with scripted.client.responses.stream(model=scripted.model, input="say:<think>hm</think>yes") as stream:
        types = [event.type for event in stream]
        assert stream.get_final_response().output_text == "yes"
    assert "response.reasoning_text.delta" in types


def test_responses_are_not_kept_unless_switched_on(scripted):
    with pytest.raises(openai.BadRequestError) as caught:
        scripted.client.responses.create(model=scripted.model, input="x", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        scripted.client.responses.retrieve("resp_1")


def test_async_responses_stream(target):
    async def run():
        async with target.async_client() as client:
            stream = await client.responses.create(model=target.model, input="say:async", stream=True,
                                                   max_output_tokens=4)
            return [event.type async for event in stream]

    types = asyncio.run(run())
    assert types[0] == "response.created" and types[-1] in ("response.completed", "response.incomplete")


def test_response_that_fails(scripted):
    events = list(scripted.client.responses.create(model=scripted.model, input="fail: say:longer than five",
                                                   stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.error.message


def test_retries_follow_retry_after(scripted):
    """A server that refuses once: the SDK waits as long as it is told, then succeeds."""
    asked = []

    def handler(request):
        asked.append(request.headers["x-stainless-retry-count"])
        if len(asked) == 1:
            return httpx.Response(429, headers={"retry-after": "1", "retry-after-ms": "10"},
                                  json={"error": {"message": "busy", "type": "rate_limit_exceeded",
                                                  "param": None, "code": "rate_limit_exceeded"}})
        with httpx.Client() as plain:
            return plain.request(request.method, request.url, content=request.read(),
                                 headers={"content-type": "application/json"})

    client = openai.OpenAI(base_url=scripted.base_url, api_key="none", max_retries=2,
                           http_client=httpx.Client(transport=httpx.MockTransport(handler)))
    answer = client.chat.completions.create(model=scripted.model,
                                            messages=[{"role": "user", "content": "say:late"}])
    assert answer.choices[0].message.content == "late" and asked == ["0", "1"]


def test_tokenize_and_back(target):
    told = httpx.post(f"{target.root}/tokenize", json={"model": target.model, "prompt": "Hello there"}).json()
    assert told["count"] == len(told["tokens"]) > 0 and told["max_model_len"] > 0
    text = httpx.post(f"{target.root}/detokenize", json={"model": target.model, "tokens": told["tokens"]}).json()
    assert text["prompt"].strip() == "Hello there"
    chat = httpx.post(f"{target.base_url}/tokenize",
                      json={"messages": [{"role": "user", "content": "hi"}]}).json()
    assert chat["count"] == target.ask("hi", max_tokens=1).usage.prompt_tokens


def test_seed_repeats(target):
    first, second = (target.ask(max_tokens=8, temperature=1.0, seed=5) for _ in range(2))
    assert first.choices[0].message.content == second.choices[0].message.content


def test_stop_string_is_not_returned(scripted):
    for stop in ("o w", ["zzz", "o w"]):
        answer = scripted.ask("say:hello world", stop=stop)
        assert answer.choices[0].message.content == "hell"
        assert answer.choices[0].finish_reason == "stop"


def test_max_tokens_names(target):
    for name in ("max_tokens", "max_completion_tokens"):
        answer = target.ask("say:a long answer", temperature=0, **{name: 1})
        assert answer.usage.completion_tokens == 1


def test_emoji_arrives_whole(scripted):
    text = "".join(chunk.choices[0].delta.content or ""
                   for chunk in scripted.ask("say:a😀é", stream=True))
    assert text == "a😀é"


def test_text_parts_and_roles(target):
    answer = target.client.chat.completions.create(
        model=target.model, max_tokens=2,
        messages=[{"role": "developer", "content": "short"},
                  {"role": "user", "content": [{"type": "text", "text": "a"},
                                               {"type": "text", "text": "b"}]},
                  {"role": "assistant", "content": None,
                   "tool_calls": [{"id": "1", "type": "function",
                                   "function": {"name": "f", "arguments": "{}"}}]},
                  {"role": "tool", "tool_call_id": "1", "content": "ok"},
                  {"role": "user", "content": "go on", "name": "me"}])
    assert answer.choices[0].finish_reason in ("stop", "length")


TOOLS = [{"type": "function", "function": {
    "name": name, "description": f"Looks up the {what}.", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}}}
    for name, what in (("get_weather", "weather"), ("get_time", "time"))]


def calls_text(*calls):
    return "say:" + "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        for name, arguments in calls)


def test_tool_calls(scripted):
    prompt = calls_text(("get_weather", '{"city": "Köln"}'), ("get_time", '{"city": "Bonn"}'))
    choice = scripted.ask(prompt, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    calls = choice.message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather", "get_time"]
    assert json.loads(calls[0].function.arguments) == {"city": "Köln"}
    assert len({call.id for call in calls}) == 2 and all(call.type == "function" for call in calls)
    one = scripted.ask(prompt, tools=TOOLS, parallel_tool_calls=False).choices[0]
    assert len(one.message.tool_calls) == 1 and one.finish_reason == "tool_calls"
    must = scripted.ask(prompt, tools=TOOLS, tool_choice="required").choices[0]
    assert len(must.message.tool_calls) == 2 and must.finish_reason == "tool_calls"
    named = {"type": "function", "function": {"name": "get_weather"}}
    one = scripted.ask(prompt, tools=TOOLS, tool_choice=named).choices[0]
    assert len(one.message.tool_calls) == 1 and one.finish_reason == "stop"
    none = scripted.ask(prompt, tools=TOOLS, tool_choice="none").choices[0]
    assert none.message.tool_calls is None and none.finish_reason == "stop"


def test_streamed_tool_calls(scripted):
    prompt = calls_text(("get_weather", '{"city": "Köln"}'), ("get_time", '{"city": "Bonn"}'))
    with scripted.client.chat.completions.stream(
            model=scripted.model, tools=TOOLS,
            messages=[{"role": "user", "content": prompt}]) as stream:
        events = list(stream)
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert [call.function.name for call in final.message.tool_calls] == ["get_weather", "get_time"]
    assert [call.function.parsed_arguments for call in final.message.tool_calls] == [{"city": "Köln"}, {"city": "Bonn"}]
    pieces = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert len(pieces) > 2
    chunks = [event.chunk.choices[0] for event in events if event.type == "chunk"]
    deltas = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    for index in (0, 1):
        mine = [call for call in deltas if call.index == index]
        assert mine[0].id and mine[0].type == "function" and mine[0].function.name
        assert all(call.id is None and call.function.name is None for call in mine[1:])
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]


def test_results_of_tools_in_a_second_turn(target):
    messages = [{"role": "user", "content": "How is it in Bonn?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {
                        "name": "get_weather", "arguments": '{"city": "Bonn"}'}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "say:It is 20 degrees."}]
    answer = target.client.chat.completions.create(
        model=target.model, messages=messages, tools=TOOLS, max_tokens=17, temperature=0)
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
    if target.scripted:
        assert answer.choices[0].message.content == "It is 20 degrees."
    messages[1]["tool_calls"][0]["function"]["arguments"] = "Bonn"
    with pytest.raises(openai.BadRequestError) as caught:
        target.client.chat.completions.create(model=target.model, messages=messages)
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"


def test_reasoning(scripted):
    prompt = "say:<think>\nlet me see\n</think>\n\nYes."
    answer = scripted.ask(prompt)
    assert answer.choices[0].message.content == "Yes."
    assert answer.choices[0].message.reasoning_content == "let me see"
    assert answer.usage.completion_tokens_details.reasoning_tokens > 10
    deltas = [chunk.choices[0].delta for chunk in scripted.ask(prompt, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == "Yes."
    reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert reasoning == "let me see"


def test_bookkeeping_fields_are_accepted(target):
    target.ask(max_tokens=1, user="u", metadata={"a": "b"}, store=False, service_tier="auto",
               extra_body={"unknown_field": 1, "top_k": 5, "min_p": 0.0,
                           "repetition_penalty": 1.0, "prompt_cache_key": "k"})


@pytest.mark.parametrize("more, param", [
    ({"temperature": 3}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"top_p": -1}, "top_p"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"n": 129}, "n"),
    ({"response_format": {"type": "x"}}, "response_format.type"),
    ({"extra_body": {"seed": "x"}}, "seed"),
])
def test_bad_fields(target, more, param):
    with pytest.raises(openai.BadRequestError) as caught:
        target.ask(**more)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_unknown_model(target):
    with pytest.raises(openai.NotFoundError) as caught:
        target.client.chat.completions.create(
            model="nobody/nothing", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        target.client.models.retrieve("nobody/nothing")


def test_prompt_too_long(target):
    with pytest.raises(openai.BadRequestError) as caught:
        target.ask("word " * 100_000)
    assert caught.value.code == "context_length_exceeded"


def test_embeddings_are_not_here(target):
    with pytest.raises(openai.NotFoundError) as caught:
        target.client.embeddings.create(model=target.model, input="x")
    assert caught.value.type == "invalid_request_error"


def test_error_before_the_first_byte_of_a_whole_reply(scripted):
    with pytest.raises(openai.InternalServerError):
        scripted.ask("fail: say:longer than five")


def test_error_in_the_stream_is_raised(scripted):
    text = ""
    with pytest.raises(openai.APIError):
        for chunk in scripted.ask("fail: say:longer than five", stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "longe"


def test_request_id(target):
    raw = target.client.with_raw_response.models.list()
    assert raw.headers["x-request-id"].startswith("req_")
    echoed = target.client.with_options(default_headers={"x-request-id": "mine"})
    assert echoed.with_raw_response.models.list().headers["x-request-id"] == "mine"


def test_client_that_stops_reading(scripted):
    stream = scripted.ask("say:" + "x" * 3000, stream=True)
    next(iter(stream))
    stream.close()

    def idle():
        return httpx.get(f"{scripted.root}/baton/status").json()["running"] == 0

    wait_for("the cancelled request to be gone", idle)


def test_shape_of_vllm_bench(target):
    body = {"model": target.model, "prompt": "hi", "temperature": 0.0, "repetition_penalty": 1.0,
            "max_tokens": 4, "logprobs": None, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    with httpx.stream("POST", f"{target.base_url}/completions", json=body,
                      headers={"x-request-id": "bench-1"}) as reply:
        assert reply.status_code == 200
        events = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert events[-1] == "[DONE]" and '"usage":{' in events[-2]
