#!/usr/bin/env python3
"""Writes tests/golden/chat_template.json: what the jinja2 package renders for templates in the style of
the common model families, and for small ones that try one feature each.

Settings are those that model templates are written for: trim_blocks, lstrip_blocks, loop controls, and
the extra names raise_exception, strftime_now, tojson without HTML escapes, and the generation tag.
Needs: pip install jinja2==3.1.6
Usage: make_template_goldens.py > tests/golden/chat_template.json
"""
import datetime
import json

import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1735689600 + 86400 * 45 + 3723  # 2025-02-15 01:02:03 UTC


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)

    made = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather in a city, \"now\" & <later>\n",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Ort, z.\u202fB. Köln"},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city"]}}}
PLAIN = {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}
CALL = [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "x": 1.5, "y": None}}},
        {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": {}}}]


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


INPUTS = [
    {"messages": [turn("user", "Hello")]},
    {"messages": [turn("system", "Be brief."), turn("user", "Hi \n there "), turn("assistant", " Yes. "), turn("user", "ünïcödé 😀 <|im_end|>")]},
    {"messages": [turn("user", "Hi"), turn("assistant", "Hello")], "add_generation_prompt": False},
    {"messages": [turn("system", "Use tools."), turn("user", "Weather?"), turn("assistant", "", tool_calls=CALL),
                  turn("tool", "{\"t\": 20}", name="get_weather", tool_call_id="call_1"), turn("tool", "12:00", tool_call_id="call_2"),
                  turn("assistant", "It is 20."), turn("user", "Thanks")], "tools": [WEATHER, PLAIN]},
    {"messages": [turn("user", "Think"), turn("assistant", "<think>\nhm\n</think>\n\nDone"), turn("user", "Again")], "kwargs": {"enable_thinking": False, "level": 3}},
    {"messages": [turn("user", "Think"), turn("assistant", "ok", reasoning_content="because")], "kwargs": {"enable_thinking": True, "names": ["b", "A", "c"], "table": {"b": 1, "A": [1, 2, {"k": "v"}], "c": None}}},
    {"messages": []},
    {"messages": [turn("user", "a"), turn("user", "b"), turn("assistant", "c\n\nd"), turn("developer", "e")], "tools": []},
    # Content in parts, arguments as text, no content beside calls.
    {"messages": [turn("system", [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]),
                  turn("user", [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}]),
                  turn("assistant", None, tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]),
                  turn("tool", [{"type": "text", "text": "42"}], tool_call_id="c1"), turn("assistant", [{"type": "text", "text": "It is 42."}])],
     "tools": [PLAIN], "add_generation_prompt": False},
    {"messages": [turn("user", "Q"), turn("assistant", "<think>one</think>two", reasoning_content="", tool_calls=[]), turn("user", "R"),
                  turn("assistant", "three", reasoning_content="four\n")], "kwargs": {"enable_thinking": True, "reasoning_effort": "low"}},
]

# name → source. The first part are whole templates, the second try single features.
TEMPLATES = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "chatml_default_system": """{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content | trim ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "header_ids": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "header_ids_tools": """{{- bos_token }}
{%- if not today is defined %}
    {%- if strftime_now is defined %}{% set today = strftime_now("%d %b %Y") %}{% else %}{% set today = "long ago" %}{% endif %}
{%- endif %}
{%- set given = tools if tools is defined and tools is not none else none %}
{#- What the system says is taken off the front. -#}
{%- set rules = "" %}
{%- if messages and messages[0].role == 'system' %}
    {%- set rules = messages[0]['content'] | trim if messages[0]['content'] is string else '' %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- "<|head|>system<|tail|>\\n\\nOn " ~ today ~ ".\\n" }}
{%- if given %}
    {%- for entry in given %}
        {{- entry | tojson(indent=4) ~ "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- rules ~ "<|end|>" }}
{%- for m in messages %}
    {%- if 'tool_calls' in m and m.tool_calls %}
        {{- "<|head|>assistant<|tail|>\\n\\n" -}}
        {%- for wanted in m.tool_calls %}
            {%- set fn = wanted.function %}
            {{- '{"call": "' + fn.name + '", "with": ' }}
            {{- fn.arguments | tojson }}
            {{- '}' if loop.last else '};' }}
        {%- endfor %}
        {{- "<|end|>" }}
    {%- elif m.role in ('tool', 'ipython') %}
        {{- "<|head|>result<|tail|>\\n\\n" }}
        {%- if m.content is mapping or m.content is iterable %}
            {{- m.content | tojson }}
        {%- else %}
            {{- m.content }}
        {%- endif %}
        {{- "<|end|>" }}
    {%- else %}
        {{- '<|head|>' + m['role'] + '<|tail|>\\n\\n' + (m['content'] | trim if m['content'] is string else m['content'] | tojson) + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|tail|>\\n\\n' }}
{%- endif %}
""",
    "inst": """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles!') }}{% endif %}{% endfor %}""",
    "inst_system": """{%- set has_rules = messages and messages[0]["role"] == "system" %}
{%- set turns = messages[1:] if has_rules else messages %}
{%- set count = namespace(seen=0) %}
{%- for t in turns %}
    {%- if t.role == "user" or (t.role == "assistant" and t.tool_calls is not defined) %}
        {{- "(odd)" if (t["role"] == "user") == (count.seen % 2 == 1) }}
        {%- set count.seen = count.seen + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for t in turns %}
    {%- if t["role"] == "user" %}
        {%- if tools is not none and (loop.index == 1 or loop.last) %}
            {{- "[TOOLS] [" }}
            {%- for entry in tools %}
                {%- set entry = entry.function %}
                {{- '{"fn": {' }}
                {%- for name, what in entry.items() if name != "returns" %}
                    {{- '"' + name + '": ' + ('"' + what + '"' if what is string else what|tojson) }}
                    {{- ", " if not loop.last }}
                {%- endfor %}
                {{- "}}" ~ ("]" if loop.last else ", ") }}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if has_rules and loop.last %}
            {{- "[ASK] " + messages[0].content + "\\n\\n" + t["content"] + "[/ASK]" }}
        {%- else %}
            {{- "[ASK] " ~ t["content"] ~ "[/ASK]" }}
        {%- endif %}
    {%- elif t.tool_calls is defined and t.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for wanted in t.tool_calls %}
            {%- set body = wanted.function|tojson %}
            {{- body[:-1] + ', "id": "' + wanted.id + '"}' }}
            {{- "]" + eos_token if loop.last else ", " }}
        {%- endfor %}
    {%- elif t["role"] == "assistant" %}
        {{- " " + t["content"]|trim + eos_token}}
    {%- elif t["role"] == "tool" %}
        {%- set body = t.content.content if t.content is defined and t.content.content is defined else t.content %}
        {{- '[RESULT] {"is": ' + body|string + ', "of": "' + t.tool_call_id + '"}[/RESULT]' }}
    {%- else %}
        {{- raise_exception("no place for the role " ~ t.role) }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": """{{ bos_token }}
{%- set prelude = messages[0]['content'] ~ '\n\n' if messages and messages[0]['role'] == 'system' else '' -%}
{%- for m in (messages[1:] if prelude else messages) -%}
    {%- set who = {'assistant': 'model'}.get(m['role'], m['role']) -%}
    {{ '<turn of ' ~ who ~ '>\n' ~ (prelude if loop.first) }}
    {%- if m['content'] is string -%}
        {{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for piece in m['content'] -%}
            {{ piece['text'] | trim if piece['type'] == 'text' else '<img>' }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("cannot print this content") }}
    {%- endif -%}
    {{ '<end>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn of model>\n'}}
{%- endif -%}
""",
    "tool_xml": """{%- set first_is_rules = messages and messages[0].role == 'system' %}
{%- if tools or first_is_rules %}
    {{- '<|turn|>system\\n' ~ (messages[0].content if first_is_rules else '') }}
    {%- if tools %}
        {{- "\\n\\nYou may call:\\n<functions>" }}
        {%- for entry in tools %}
            {{- "\\n" ~ entry | tojson }}
        {%- endfor %}
        {{- "\\n</functions>" }}
    {%- endif %}
    {{- '<|done|>\\n' }}
{%- endif %}
{#- The last question that is no result in disguise; thoughts before it are dropped. #}
{%- set look = namespace(open=true, at=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- if look.open and m.role == "user" and m.content is string and not (m.content.startswith('<result>') and m.content.endswith('</result>')) %}
        {%- set look.open = false %}
        {%- set look.at = (messages|length - 1) - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set said = m.content if m.content is string else '' %}
    {%- if m.role == "user" or (m.role == "system" and not loop.first) %}
        {{- '<|turn|>' + m.role + '\\n' + said + '<|done|>' + '\\n' }}
    {%- elif m.role == "assistant" %}
        {%- set thought = m.reasoning_content if m.reasoning_content is string else '' %}
        {%- if not thought and '</think>' in said %}
            {%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|turn|>' + m.role + '\\n' }}
        {%- if loop.index0 > look.at and (thought or loop.last) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + said.lstrip('\\n') }}
        {%- else %}
            {{- said }}
        {%- endif %}
        {%- for wanted in m.tool_calls or [] %}
            {{- '\\n' if said or not loop.first }}
            {%- if wanted.function %}{% set wanted = wanted.function %}{% endif %}
            {{- '<call>{"of": "' ~ wanted.name ~ '", "with": ' }}
            {{- wanted.arguments if wanted.arguments is string else wanted.arguments | tojson }}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '<|done|>\\n' }}
    {%- elif m.role == "tool" %}
        {{- '<|turn|>user' if loop.first or (messages[loop.index0 - 1].role != "tool") }}
        {{- '\\n<result>\\n' ~ m.content ~ '\\n</result>' }}
        {{- '<|done|>\\n' if loop.last or (messages[loop.index0 + 1].role != "tool") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
    {{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and enable_thinking is false }}
{%- endif %}
""",
    "role_markers": """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% else %}{{'<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "deep": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + (tool['function']['arguments'] | tojson) + '\\n' + '```'}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + '<｜tool▁call▁begin｜>' + tool['type']}}{{'<｜end｜>'}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and not message['tool_calls'] %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜tool▁outputs▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n' + message['content']}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}""",
    "generation_tag": """{% for message in messages %}
{% if message.role == 'assistant' %}
{% generation %}
{{ message.content }}{% endgeneration %}

{% else %}
{{ message.role | upper }}: {{ message.content }}
{% endif %}
{% endfor %}
""",
    "schema_macros": """{%- macro render_type(spec, level=0) -%}
    {%- if spec.type == 'array' and spec['items'] is defined -%}
        {{- render_type(spec['items'], level=level + 1) }}[]
    {%- elif spec.enum is defined -%}
        {{- '"' + spec.enum | join('" | "') + '"' }}
    {%- elif spec.type == 'object' -%}
        {{- '{\\n' }}
        {%- for key, value in spec.properties.items() %}
            {{- '  ' * (level + 1) ~ key ~ ('' if spec.required is defined and key in spec.required else '?') ~ ': ' ~ render_type(value, level + 1) ~ (',' if not loop.last else '') ~ '\\n' }}
        {%- endfor %}
        {{- '  ' * level ~ '}' }}
    {%- else -%}
        {{- spec.type }}
    {%- endif -%}
{%- endmacro -%}
{%- if tools %}
    {%- for tool in tools | map(attribute='function') %}
namespace {{ tool.name }} {
        {%- filter indent(width=2) %}
type call = {{ render_type(tool.parameters) }};
        {%- endfilter %}
}
    {%- endfor %}
{%- endif %}
""",
    "granite_style": """{%- if messages and messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set system_message = 'Date: ' + strftime_now('%B %d, %Y') + '.' %}{%- set loop_messages = messages %}{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>
' }}
{%- for message in loop_messages %}
{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>
' }}
  {%- if loop.last and add_generation_prompt %}
  {{- '<|start_of_role|>assistant' }}
          {%- if controls %}{{- ' ' + controls | tojson()}}{%- endif %}
  {{- '<|end_of_role|>' }}
  {%- endif %}
{%- endfor %}""",
    "command_style": """{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'You are here.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in loop_messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}""",
    "vicuna_style": "{% for message in messages %}{% if loop.first and message.role != 'system' %}A chat. {% endif %}{{ {'user': 'USER: ', 'assistant': 'ASSISTANT: ', 'system': ''}.get(message.role, message.role | title ~ ': ') ~ message.content ~ (eos_token if message.role == 'assistant' else ' ') }}{% endfor %}{{ 'ASSISTANT:' if add_generation_prompt }}",
    "harmony_style": """{%- set ns = namespace(last_tool=none, calls=0) -%}
{%- for message in messages -%}
    {%- if message.role in ['system', 'developer'] and loop.index0 > 0 -%}{%- continue -%}{%- endif -%}
    {%- if message.tool_calls is defined -%}
        {%- for call in message.tool_calls -%}
            {%- set ns.last_tool = call.function.name -%}{%- set ns.calls = ns.calls + 1 -%}
            <|start|>assistant to=functions.{{ call.function.name }}<|channel|>commentary json<|message|>{{ call.function.arguments | tojson }}<|call|>
        {%- endfor -%}
    {%- elif message.role == 'tool' -%}
        {%- if ns.last_tool is none -%}{{ raise_exception('tool without call') }}{%- endif -%}
        <|start|>functions.{{ ns.last_tool }} to=assistant<|channel|>commentary<|message|>{{ message.content | tojson }}<|end|>
    {%- else -%}
        <|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}""",
    "parts_style": """{%- macro text_of(content) -%}
{%- if content is none or content is undefined -%}
{%- elif content is string -%}{{ content }}
{%- elif content is mapping -%}{{ content | tojson }}
{%- else -%}
{%- for part in content -%}
{%- if part is string -%}{{ part }}
{%- elif part.type == 'text' -%}{{ part.text }}
{%- elif part['type'] in ('image', 'image_url') -%}<picture:{{ loop.index }}/{{ content | length }}>
{%- else -%}{{ raise_exception('odd part ' ~ part.type) }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{{ bos_token }}
{%- for m in messages -%}
<|{{ m.role | upper }}{{ ' ' ~ m.name if m.name }}|>{{ text_of(m.content) | trim }}
{%- for c in m.tool_calls or [] -%}
[{{ c.function.name }}{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}]
{%- endfor -%}
<|stop|>
{%- endfor -%}
{{ '<|ASSISTANT|>' if add_generation_prompt }}""",
    "answer_only_style": """{%- set state = namespace(calls=0, in_call=false, last_user=-1) -%}
{%- for m in messages if m.role == 'user' -%}{%- set state.last_user = loop.index -%}{%- endfor -%}
{{- bos_token ~ (messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | select('string') | join('\\n')) -}}
{%- for m in messages -%}
{%- if m.role == 'user' -%}
{%- set state.in_call = false -%}<U>{{ m.content if m.content is string else m.content | length }}
{%- elif m.role == 'assistant' and m.tool_calls is defined and m.tool_calls -%}
{%- for call in m['tool_calls'] -%}
{%- if not state.in_call -%}<A><calls>{%- set state.in_call = true -%}{%- else -%}{{ '\\n' }}{%- endif -%}
{%- set state.calls = state.calls + 1 -%}
<call {{ state.calls }}>{{ call['type'] }}:{{ call['function']['name'] }}\\n```json\\n{{ call['function']['arguments'] }}\\n```
{%- endfor -%}
{{- '<end calls>' ~ eos_token -}}
{%- elif m.role == 'assistant' -%}
{%- if '</think>' in (m.content or '') and m.content is string -%}
{%- set shown = m.content.split('</think>') | last -%}
{%- elif m.content is string -%}{%- set shown = m.content -%}
{%- else -%}{%- set shown = m.content[0].text if m.content else '' -%}{%- endif -%}
{{- '<A>' + shown.lstrip('\\n') + eos_token -}}
{%- elif m.role == 'tool' -%}
<out>{{ m.content if m.content is string else m.content[0]['text'] }}</out>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and not state.in_call -%}<A><think>\\n{%- endif -%}""",
    "effort_style": """{%- set effort = reasoning_effort | default('medium') -%}
{%- if effort not in ['low', 'medium', 'high'] -%}{{ raise_exception('no such effort: ' ~ effort) }}{%- endif -%}
{%- set think = enable_thinking if enable_thinking is defined else true -%}
{%- set instructions -%}
Today: {{ strftime_now('%A, %d %B %Y, %j') }}
Effort: {{ effort | capitalize }}{{ ' (off)' if not think }}
{% endset -%}
<|sys|>{{ instructions | trim }}
{%- if tools %}

## Tools
{% for t in tools | map(attribute='function') %}
{{ '%02d. %s' % (loop.index, t.name) }}{% for k, v in (t.parameters.properties or {}) | dictsort %}
 - {{ k }}{{ '?' if k not in (t.parameters.required or []) }}: {{ v.type | default('any') }}{{ ' = ' ~ v.default if v.default is defined }}{{ ' in ' ~ (v.enum | join('|')) if v.enum }}
{%- endfor %}

{% endfor %}
{%- endif %}
{% for m in messages %}
{%- if loop.changed(m.role) %}<|{{ m.role }}|>{% else %}{{ '\\n\\n' }}{% endif %}
{%- if m.reasoning_content and think and loop.last %}<think>{{ m.reasoning_content.strip() }}</think>{% endif %}
{{- m.content if m.content is string else m.content | tojson }}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{{ '' if think else '<think></think>' }}{% endif %}""",
    "raw_and_comments": "{# one #}\n  {# two #}\nA {% raw %}{{ not }} {% this %}{% endraw %} B\n{%- raw -%}  x  {%- endraw -%}  C\n{% raw %}\nline\n{% endraw %}\nD",
    # single features
    "white_space": "a\n  {% if true %}\n  b\n  {% endif %}\n c {% if true %} d {% endif %} \n\t{%+ if true %}e{%+ endif +%}\nf {{ 'g' -}}  \n h {{- 'i' }}\n\n{%- if true -%}\n\n j \n{%- endif %}\n{{ 'k' }}\n\n",
    "loop_variables": "{% for m in messages %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.length }}/{{ loop.first }}/{{ loop.last }}/{{ loop.depth }}/{{ loop.previtem.role if loop.previtem is defined }}/{{ loop.nextitem.role if loop.nextitem is defined else '-' }}/{{ loop.cycle('x', 'y') }}/{{ loop.changed(m.role) }};{% else %}none{% endfor %}",
    "loop_scopes": "{% set x = 1 %}{% for i in range(3) %}{{ x }}{% set x = i + 10 %}{{ x }},{% endfor %}{{ x }}{% for i in range(2) %}{% if i == 1 %}{{ y is defined }}{% endif %}{% set y = 1 %}{% endfor %}{{ y is defined }}{% if true %}{% set z = 5 %}{% endif %}{{ z }}{% with a = 1, b = x %}{{ a + b }}{% set x = 9 %}{% endwith %}{{ x }}",
    "loop_control": "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}|{% for i in range(6) if i % 2 %}{{ i }}:{{ loop.index }}/{{ loop.length }} {% endfor %}|{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }}{% endfor %}|{% for c in 'añ😀' %}[{{ c }}]{% endfor %}|{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}|{% for x in nothing %}{% else %}empty{% endfor %}",
    "arithmetic": "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1.5 + 1 }} {{ 1e3 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }} {{ -2 | abs }} {{ 3 - -2 }} {{ 1_000 }} {{ 2 * 3 + 4 * 5 }} {{ (2 + 3) * 4 }} {{ 10 - 3 - 2 }} {{ 2.0 ** 3 }} {{ 7.5 % 2 }} {{ true + 1 }} {{ 5.0 // 2 }}",
    "comparisons": "{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' in 'cat' }} {{ 'x' not in ['x'] }} {{ 'k' in {'k': 1} }} {{ not 1 == 2 }} {{ 1 and 0 or 'z' }} {{ '' or none or [] or 'last' }} {{ none == none }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ {'a': [1]} == {'a': [1]} }} {{ 1 != 2 and not false }} {{ 1 in [1.0] }}",
    "reprs": "{{ [1, 'a', \"it's\", 'q\"', none, true, 1.0, {'k': (1,)}] }} {{ {'a': 'b\\n\\t\\\\', 1: 2} }} {{ (1, 2) }} {{ () }} {{ [] }} {{ 'x' }} {{ ['é\\x01\\x7f\\u200b😀\\xa0'] }} {{ none }} {{ true }} {{ undefined_name }} {{ -0.0 }} {{ 1e100 }} {{ ['both \\' and \"'] }}",
    "strings": "{{ 'a' 'b' \"c\" }}{{ 'tab\\tnl\\nq\\'bs\\\\x\\x41u\\u00e9o\\101z\\q' }}{{ 'ab' * 3 }}{{ 3 * 'x' }}{{ 'abc'[1] }}{{ 'abc'[-1] }}{{ 'añ😀d'[1:3] }}{{ 'abcdef'[::-2] }}{{ 'abcdef'[4:1:-1] }}{{ 'abc'[10:] }}{{ 'abc'[-100:2] }}[{{ 'abc'[5] }}]{{ '%s-%d-%05.2f-%%-%r' % ('x', 3, 2.5, 'y') }}{{ '%s' % 7 }}{{ '[%5s|%-5s|%.2s|%6.1s|%3s|%5d|%-4d|%x]' % ('ab', 'é', 'xyz', 'qr', 'long', 7, 8, 255) }}{{ '%5s' % 3 }}{{ '%d' % 9007199254740993 }}{{ 'a{}b{}{{}}'.format(1, 'z') }}{{ '{0}{1}{0}{k}'.format('p', 'q', k='r') }}",
    "methods": "{{ ' a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b c '.split() }}|{{ ' a  b c '.split(none, 1) }}|{{ 'a-b-c'.split('-', 1) }}|{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a\\nb\\r\\nc\\n'.splitlines() }}|{{ 'Hello'.startswith('He') }}|{{ 'Hello'.endswith(('x', 'lo')) }}|{{ 'hello world'.title() }}|{{ 'hELLO wORLD'.capitalize() }}|{{ 'aXbX'.replace('X', '--') }}|{{ 'aXbX'.replace('X', '-', 1) }}|{{ 'abc'.replace('', '.') }}|{{ 'abcabc'.find('c') }}|{{ 'abcabc'.rfind('c') }}|{{ 'abcabc'.find('z') }}|{{ 'banana'.count('an') }}|{{ '-'.join(['a', 'b']) }}|{{ 'ab'.upper() }}{{ 'ÄB'.lower() }}|{{ '12'.isdigit() }}|{{ 'prefix-x'.removeprefix('prefix-') }}|{{ 'x.txt'.removesuffix('.txt') }}|{{ 'aé😀b'.find('b') }}|{{ 'é'.upper() }}|{{ 'x'.isspace() }}{{ ' '.isspace() }}|{{ 'AB'.isupper() }}{{ 'ab1'.islower() }}|{{ 'it\\'s o\\'clock'.title() }}",
    "dict_methods": "{% set d = {'b': 1, 'A': 2, 'c': none} %}{{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 7) }} {{ d.b }} {{ d['A'] }} {{ d.zzz is defined }} {{ d | length }} {{ d | dictsort }} {{ d | dictsort(true) }} {{ d | dictsort(reverse=true) }} {{ {'x': 2, 'y': 1} | dictsort(by='value') }} {{ d | items | list }} {{ d | list }} {{ dict(a=1, b='x') }} {{ {'items': 5}['items'] }} {{ dict([('p', 1)], q=2) }}",
    "mutations": "{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}{% set _ = l.extend([3, 4]) %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}{% set _ = l.insert(0, 'x') %}{{ l }}{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) %}{{ d }}{{ d.pop('a') }}{{ d }}{{ l.index(2) }}{{ [1, 2, 1].count(1) }}",
    "filters": "{{ ' x ' | trim }}|{{ 'xax' | trim('x') }}|{{ [3, 1, 2] | sort }}|{{ ['b', 'A', 'c'] | sort }}|{{ ['b', 'A', 'c'] | sort(reverse=true, case_sensitive=true) }}|{{ [1, 2, 3] | first }}{{ [1, 2, 3] | last }}|{{ [] | first is defined }}|{{ 'abc' | reverse }}|{{ [1, 2] | reverse | list }}|{{ ['a', 'B', 'b', 'A'] | unique | list }}|{{ [1, 5, 3] | max }}{{ [4, 2] | min }}|{{ [1, 2, 3] | sum }}|{{ ['a', 1, none] | join('-') }}|{{ 'a' | default('d') }}{{ nope | default('d') }}{{ '' | default('e', true) }}{{ nope | d }}|{{ '42' | int + 1 }}{{ 'x' | int }}{{ 'x' | int(default=7) }}{{ '3.9' | int }}{{ 2.7 | int }}|{{ '1.5' | float }}{{ 'y' | float }}|{{ 2.567 | round(2) }}{{ 2.5 | round }}{{ 2.1 | round(0, 'ceil') }}{{ 2.9 | round(method='floor') }}|{{ 'hello wORLD foo-bar' | title }}|{{ 'hELLO' | capitalize }}|{{ 'aXa' | replace('a', 'b') }}|{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a b  c' | wordcount }}|{{ [1, 2, 3, 4, 5] | batch(2, '-') | list }}|{{ '%s %s' | format('a', 1) }}|{{ 'x' | string }}{{ 5 | string + '6' }}|{{ 'abc' | list }}|{{ -3 | abs }}|{{ 'A' | lower }}{{ 'b' | upper }}|{{ messages | attr('x') is defined }}|{{ 'safe' | safe }}",
    "select_filters": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}|{{ messages | rejectattr('role', 'equalto', 'user') | list | length }}|{{ messages | selectattr('tool_calls', 'defined') | list | length }}|{{ messages | map(attribute='role') | join(',') }}|{{ [1, 2, 3, 4] | select('even') | list }}{{ [0, 1, '', 'a'] | select | list }}{{ [0, 1] | reject | list }}{{ [1, 2, 3] | reject('greaterthan', 1) | list }}|{{ ['a', 'b'] | map('upper') | list }}{{ [' x '] | map('trim') | list }}|{{ messages | map(attribute='name', default='none') | list }}|{{ [{'a': {'b': 1}}, {'a': {'b': 2}}] | map(attribute='a.b') | list }}{{ [[1, 2], [3, 4]] | map(attribute=1) | list }}|{{ messages | selectattr('role', 'in', ['system', 'tool']) | list | length }}|{{ [{'n': 2}, {'n': 1}] | sort(attribute='n') | map(attribute='n') | list }}{{ [{'n': 2}, {'n': 1}] | sum(attribute='n') }}",
    "nothing_to_select": "{{ none | selectattr('a', 'equalto', 1) | list }}{{ 0 | select('odd') | list | length }}{{ none | map('upper') | list }}{{ false | map(attribute='x') | join('-') }}{{ nope | rejectattr('a') | list }}{{ tools | selectattr('type', 'equalto', 'function') | list | length }}",
    "tests": "{{ 1 is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ true is integer }}{{ 'a' is string }}{{ [] is sequence }}{{ {} is mapping }}{{ 'a' is iterable }}{{ 5 is iterable }}{{ none is none }}{{ x is defined }}{{ x is undefined }}{{ x is not defined }}{{ 4 is even }}{{ 4 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 3 is eq 3 }}{{ 3 is ne(3) }}{{ 2 is lt 3 }}{{ 2 is ge 3 }}{{ 'a' is in ['a'] }}{{ 'ab' is lower }}{{ 'AB' is upper }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ range is callable }}{{ none is sameas none }}{{ not x is defined and true }}{{ 1 is number and 'a' is string }}{{ messages is iterable and messages is not string }}{{ 'upper' is filter }}{{ 'nope' is filter }}",
    "tojson": "{{ {'b': [1, 2.5, 1e20, none, true], 'a': \"q\\\"\\\\\\n\\t</é😀\\u2028\\x7f\\x01\", 'e': {}, 'l': []} | tojson }}|{{ {'b': 1, 'a': {'z': [1, {'y': 2}], 'e': []}} | tojson(indent=2) }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}|{{ [1, 2] | tojson(separators=(',', ':')) }}|{{ 'é😀' | tojson(ensure_ascii=true) }}|{{ table | default({}) | tojson(indent=1) }}|{{ {1: 2, none: 3, true: 4} | tojson }}|{{ tools | tojson if tools else '' }}|{{ (1, 'x') | tojson }}",
    "namespaces": "{% set ns = namespace(a=1, l=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.a }}{{ ns.l }}{{ ns.zzz is defined }}{% set n2 = namespace() %}{% set n2.x %}block {{ ns.a }}{% endset %}{{ n2.x }}{% set n3 = namespace({'k': 1}, j=2) %}{{ n3.k }}{{ n3.j }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}",
    "macros": "{% macro f(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(1, c=3) }}{{ f(b='x', a='y') }}{{ f() }}{% macro g(n) %}{{ n }}{{ g(n - 1) if n > 0 }}{% endmacro %}{{ g(3) }}{% macro h() %}<{{ caller('in') }}>{% endmacro %}{% call(x) h() %}{{ x }}-body{% endcall %}{% set outer = 'o' %}{% macro k() %}{{ outer }}{% set outer = 'changed' %}{{ outer }}{% endmacro %}{{ k() }}{{ outer }}{{ f('  s ') | trim | length }}",
    "blocks": "{% set x %}  a {{ 1 + 1 }}\n{% endset %}[{{ x }}]{% set y | trim | upper %} up {% endset %}[{{ y }}]{% filter upper | replace('A', 'b') %}aab {{ 'a' }}{% endfilter %}{% filter indent(width=3, first=true) %}l1\nl2{% endfilter %}",
    "conditionals": "{{ 'a' if true }}{{ 'a' if false }}{{ 'a' if false else 'b' }}{{ 'a' if false else 'b' if false else 'c' }}{{ ('x' if 1 else 'y') ~ 'z' }}{{ 1 if [] else 2 }}{% if 0 %}0{% elif '' %}1{% elif [0] %}2{% else %}3{% endif %}{{ 'p' ~ 1 ~ none ~ 2.0 ~ [1] }}{{ (1 + 2) ~ 3 }}{{ 'a' ~ 'b' * 2 }}{{ -1 ** 2 }}{{ 'x' | upper ~ 'y' }}{{ 2 * 'a' | length }}",
    "undefined": "[{{ nope }}][{{ messages.nope }}][{{ nope | default('d') }}][{{ nope ~ 'x' }}][{{ 'x' in nope }}][{{ nope | length }}][{{ nope == other }}][{{ none.x is defined }}][{{ 'abc'.zzz is defined }}][{{ [1][5] is defined }}][{{ nope | trim }}][{{ nope | list }}][{{ nope | join(',') }}][{{ nope is string }}][{{ {}.a is defined }}][{{ nope | upper }}]",
    "utf8": "{{ '日本語' | length }}{{ '日本語'[1] }}{{ '日本語'[:2] }}{{ 'ÀÉ' | lower }}{{ 'straße' | upper }}{{ '  　x' | trim }}{{ 'é' in 'café' }}{{ messages | map(attribute='content') | join('·') | length }}",
    "slices": "{{ [1, 2, 3, 4][1:3] }}{{ [1, 2, 3][::-1] }}{{ [1, 2, 3][-2:] }}{{ [1, 2, 3][:-1] }}{{ (1, 2, 3)[1:] }}{{ [1, 2, 3][5:] }}{{ [1, 2, 3, 4, 5][::2] }}{{ [1, 2, 3, 4, 5][3:0:-2] }}{{ messages[1:] | length }}{{ messages[-1].role if messages }}{{ range(5)[1:3] | list }}{{ range(10, 0, -3) | list }}{{ range(2, 5) | list }}{{ messages[0:1][0]['role'] if messages else 'no' }}",
    "kwargs": "{{ level | default(0) + 1 }}{{ enable_thinking is defined and enable_thinking }}{{ names | default([]) | sort | join }}{% for k, v in (table | default({})).items() %}{{ k }}={{ v }};{% endfor %}{{ table.A[2].k if table is defined }}",
    # errors: rendering fails
    "error_raise": "{% if messages | length > 2 %}{{ raise_exception('too many: ' ~ messages | length) }}{% endif %}ok",
    "error_add": "{{ 'a' + messages | length }}",
    "error_call": "{{ nope() }}", "error_attribute": "{{ nope.a }}", "error_filter_type": "{{ 5 | length }}", "error_unpack": "{% for a, b in [1, 2] %}{% endfor %}",
    "error_zero": "{{ 1 // 0 }}", "error_range": "{{ range(3) + nope }}", "error_order": "{{ [1, 'a'] | sort }}", "error_json": "{{ nope | tojson }}",
    # errors: parsing fails
    "syntax_open": "{% for x in y %}", "syntax_tag": "{% nonsense %}", "syntax_expression": "{{ 1 + }}", "syntax_bracket": "{{ [1, 2 }}", "syntax_end": "{% endif %}", "syntax_string": "{{ 'a }}",
    "syntax_comment": "{# open", "syntax_name": "{{ 1 | 2 }}", "syntax_else": "{% if 1 %}{% else %}{% else %}{% endif %}", "syntax_var": "{{ a b }}",
}


def render(environment, source, given):
    try:
        return environment.from_string(source).render(
            messages=json.loads(json.dumps(given["messages"])), tools=given.get("tools"),
            add_generation_prompt=given.get("add_generation_prompt", True), bos_token="<s>", eos_token="</s>",
            **given.get("kwargs", {}))
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, AttributeError, KeyError):
        return None


def main():
    environment = make_environment()
    templates = dict(TEMPLATES)
    cases = []
    for t, source in enumerate(templates.values()):
        outputs = [render(environment, source, given) for given in INPUTS]
        if all(output == outputs[0] for output in outputs):
            outputs = outputs[:1]
        cases.append(outputs)
    json.dump({"now": NOW, "inputs": INPUTS,
               "templates": [{"name": name, "source": source, "outputs": outputs}
                             for (name, source), outputs in zip(templates.items(), cases)]},
              sys.stdout, separators=(",", ":"))
    print()


main()
