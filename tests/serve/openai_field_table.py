"""What each field of OpenAI's requests may say here, and what not.

Of each refused value stands beside it which field the refusal names, where that is not the field
itself: a place inside it.
"""

from __future__ import annotations

from typing import Any

HELLO: Any = [{"role": "user", "content": "hello"}]
TOOL: Any = {"type": "function", "function": {"name": "stop"}}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1]}}}
Refused = tuple[Any, str]  # the value, and which field the refusal names
Field = tuple[list[Any], list[Refused]]


def fields(**table: tuple[list[Any], list[Any]]) -> dict[str, Field]:
    """A refusal that names the field itself may leave its name out."""
    return {
        name: (good, [one if isinstance(one, tuple) else (one, name) for one in bad])
        for name, (good, bad) in table.items()
    }


NOTED = fields(
    user=(["ann", "", None], [3, ["ann"]]),
    store=([False, None], [True, "no", 0]),
    metadata=(
        [{}, {"a": "b"}, None],
        [
            "a",
            ({"a": 1}, "metadata[...]"),
            {str(at): "" for at in range(17)},
            ({"a": "b" * 513}, "metadata[...]"),
            {"a" * 65: "b"},
        ],
    ),
    service_tier=(["auto", "default", None], ["priority", "flex", 1]),
    safety_identifier=(["ann", None], ["a" * 65, 1]),
    prompt_cache_key=(["a", None], [1]),
    prompt_cache_retention=(["in_memory", "24h", None], ["1h", 1]),
    prompt_cache_options=(
        [{}, {"mode": "explicit", "ttl": "30m"}, None],
        ["a", ({"mode": "x"}, "prompt_cache_options.mode"), ({"x": 1}, "prompt_cache_options.x")],
    ),
)
SAMPLED = fields(
    model=(["tiny", None], [3, "gpt-17"]),
    temperature=([0, 1, 2, None], [-0.1, 2.1, 1e300, "hot", True, [1]]),
    top_p=([0, 0.5, 1, None], [-0.1, 1.1, "all"]),
    n=([1, 2, None], [0, -1, 129, 1.5, "two", 10**30]),
    stop=(["x", ["x", "y"], [], None], ["", [""], 3, ([1], "stop[0]")]),
    seed=([0, -5, 2**63, None], [1.5, "a", 2**64]),
    presence_penalty=([-2, 2, None], [-2.1, "a"]),
    frequency_penalty=([-2, 2, None], [2.1, "a"]),
    logit_bias=(
        [{}, {"5": -100, "6": 0.5}, None],
        [
            {"5": 101},
            {"word": 1},
            {"-1": 1},
            {"1_0": 1},
            {"9999": 1},
            [1],
            ({"5": "a"}, "logit_bias[...]"),
            {str(at): 1 for at in range(2000)},
        ],
    ),
    stream=([False, None], ["yes", 1]),
    stream_options=([None], [{"include_usage": True}, {}, "a", ({"x": 1}, "stream_options.x")]),
    top_k=([0, -1, 5, None], [-2, 1.5, "a"]),
    min_p=([0, 0.5, None], [-1, 1.1, "a"]),
    min_tokens=([0, 1, None], [-1, 5, "a"]),
    stop_token_ids=([[], [5], None], [[-1], 5, ([1.5], "stop_token_ids[0]"), [9999]]),
    ignore_eos=([True, False, None], ["a", 1]),
    repetition_penalty=([1.1, None], [0, -1, "a"]),
    priority=([0, -3, 3, None], [10**12, 1.5, "a"]),
    cache_salt=(["", "a", None], [1]),
    return_token_ids=([True, False, None], ["a"]),
)
FORMED: dict[str, Field] = fields(
    response_format=(
        [{"type": "text"}, FORM, {"type": "choice", "choice": ["a", "b"]}, None],
        [
            "json",
            ({"type": "xml"}, "response_format.type"),
            {"type": "json_schema", "json_schema": {"schema": {"enum": [10**30]}}},
            {"type": "json_schema", "json_schema": {"schema": {"minProperties": 2}}},
            ({}, "response_format.type"),
            ({"type": "json_schema"}, "response_format.json_schema"),
            ({"type": "regex"}, "response_format.regex"),
            ({"type": "choice", "choice": []}, "response_format.choice"),
            ({"type": "json_schema", "schema": {}}, "response_format.schema"),
            {"type": "json_schema", "json_schema": {"schema": {"type": "wood"}}},
            {"type": "json_schema", "json_schema": {"schema": {"not": {}}}},
            {"type": "json_schema", "json_schema": {"schema": {"pattern": "("}}},
            {"type": "regex", "regex": "(?=a)b"},
            {
                "type": "json_schema",
                "json_schema": {"schema": {"type": "array", "items": False, "minItems": 1}},
            },
        ],
    ),
)
CHAT = (
    NOTED
    | SAMPLED
    | FORMED
    | fields(
        messages=(
            [
                HELLO,
                [{"role": "developer", "content": [{"type": "text", "text": "a"}]}, *HELLO],
                [*HELLO, {"role": "assistant", "content": None, "refusal": "no"}, *HELLO],
                [
                    *HELLO,
                    {
                        "role": "assistant",
                        "function_call": {"name": "f", "arguments": "{}"},
                        "annotations": [],
                        "audio": None,
                    },
                    {"role": "function", "name": "f", "content": "1"},
                ],
            ],
            [
                [],
                "hello",
                None,
                (["hello"], "messages[0]"),
                ([{"role": "user"}], "messages[0].content"),
                ([{"content": "a"}], "messages[0].role"),
                ([{"role": "wizard", "content": "a"}], "messages[0].role"),
                ([{"role": "user", "content": 3}], "messages[0].content"),
                ([{"role": "user", "content": "a", "mood": "b"}], "messages[0].mood"),
                (
                    [*HELLO, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
                    "messages[1].content[0]",
                ),
                ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
                (
                    [{"role": "user", "content": [{"type": "text", "text": "a", "file": {}}]}],
                    "messages[0].content[0].file",
                ),
                (
                    [{"role": "user", "content": "a", "tool_calls": [{"id": "1"}]}],
                    "messages[0].tool_calls",
                ),
                (
                    [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
                    "messages[0].tool_calls[0]",
                ),
                (
                    [
                        {
                            "role": "assistant",
                            "tool_calls": [{"function": {"name": "f", "arguments": "{"}}],
                        }
                    ],
                    "messages[0].tool_calls[0].function.arguments",
                ),
                ([{"role": "assistant", "content": "", "audio": {"id": "1"}}], "messages[0].audio"),
                [{"role": "user", "content": "x" * 5000}],
            ],
        ),
        max_tokens=([1, 2, 10**6, None], [0, -1, 1.5, "a", 2**63]),
        max_completion_tokens=([1, 10**6, None], [0, -1, 1.5, "a", 2**63]),
        logprobs=([True, False, None], [1, "a"]),
        top_logprobs=([0, None], [3, -1, 1.5]),
        tools=(
            [[], [TOOL], None],
            [
                "a",
                [TOOL, TOOL],
                ([{"type": "custom"}], "tools[0].type"),
                ([{"type": "function"}], "tools[0].function"),
                ([{**TOOL, "x": 1}], "tools[0].x"),
                (
                    [{"type": "function", "function": {"name": "a b"}}],
                    "tools[0].function.name",
                ),
                (
                    [
                        TOOL,
                        {"type": "function", "function": {"name": "a", "parameters": {"not": {}}}},
                    ],
                    "tools[1].function.parameters",
                ),
                (
                    [
                        TOOL,
                        {
                            "type": "function",
                            "function": {"name": "a", "parameters": {"minProperties": 2}},
                        },
                    ],
                    "tools[1].function.parameters",
                ),
            ],
        ),
        tool_choice=(
            ["none", "auto", None],
            ["required", "x", {"type": "function", "function": {"name": "f"}}],
        ),
        parallel_tool_calls=([None], [True, False, "a"]),
        modalities=([["text"], None], [["text", "audio"], "text", []]),
        audio=([None], [{"voice": "a", "format": "mp3"}]),
        prediction=([None], [{"type": "content", "content": "a"}]),
        web_search_options=([None], [{}]),
        functions=([[], None], [[{"name": "f"}]]),
        function_call=(["none", None], ["auto", {"name": "f"}]),
        moderation=([None], [{"model": "a"}]),
        verbosity=(["medium", None], ["low", "loud", 1]),
        reasoning_effort=(["none", "medium", None], ["high", "most"]),
        chat_template_kwargs=(
            [{}, {"enable_thinking": False}, None],
            [
                "a",
                ({"messages": []}, "chat_template_kwargs.messages"),
                ({"self": 1}, "chat_template_kwargs.self"),
                ({"special_tokens": {}}, "chat_template_kwargs.special_tokens"),
                ({"eos_token": "a"}, "chat_template_kwargs.eos_token"),
            ],
        ),
    )
)
COMPLETION = (
    NOTED
    | SAMPLED
    | FORMED
    | fields(
        prompt=(
            ["hello", ["a", "b"], [5, 6], [[5], [6]]],
            [
                "",
                [],
                [""],
                [[]],
                [1, "a"],
                [5000],
                [-1],
                None,
                3,
                {},
                ["a"] * 200,
                ([1.5], "prompt[0]"),
                "x" * 5000,
            ],
        ),
        max_tokens=([1, 10**6, None], [0, -1, 1.5, "a", 2**63]),
        logprobs=([0, 2, None], [-1, 50, True]),
        echo=([True, False, None], ["a"]),
        suffix=(["", None], ["a", 1]),
        best_of=([1, None], [4, 0, "a"]),
    )
)
RESPONSE = NOTED | fields(
    input=(
        ["hello", [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]],
        [
            None,
            3,
            [],
            (["a"], "input[0]"),
            ([{"role": "user"}], "input[0].content"),
            ([{"content": "a"}], "input[0].role"),
            ([{"role": "tool", "content": "a"}], "input[0].role"),
            ([{"type": "item_reference", "id": "a"}], "input[0].type"),
            ([{"role": "user", "content": "a", "x": 1}], "input[0].x"),
            ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]"),
            "x" * 5000,
        ],
    ),
    model=(["tiny", None], [3, "gpt-17"]),
    instructions=(["be brief", None], [3]),
    max_output_tokens=([1, 10**6, None], [0, -1, 1.5, "a", 2**63]),
    temperature=([0, 2, None], [-1, 2.1, "a"]),
    top_p=([0, 1, None], [-1, 1.1]),
    text=(
        [
            {},
            {"format": {"type": "text"}, "verbosity": "medium"},
            None,
            {"format": {"type": "json_schema", "name": "a", "schema": {"enum": [1]}}},
        ],
        [
            "a",
            ({"verbosity": "low"}, "text.verbosity"),
            ({"format": {"type": "xml"}}, "text.format.type"),
            ({"format": {"type": "json_schema", "schema": {"type": "wood"}}}, "text.format"),
            ({"format": {"type": "json_schema", "schema": {"not": {}}}}, "text.format"),
        ],
    ),
    stream=([False, None], [1]),
    stream_options=([None], [{}, {"include_obfuscation": True}]),
    truncation=(["disabled", None], ["auto", "x"]),
    parallel_tool_calls=([True, False, None], ["a"]),
    include=(
        [[], ["reasoning.encrypted_content"], None],
        [["message.output_text.logprobs"], "a", (["x"], "include[0]")],
    ),
    reasoning=(
        [{}, {"effort": "none", "summary": "auto"}, None],
        [({"effort": "high"}, "reasoning.effort"), ({"x": 1}, "reasoning.x"), "a"],
    ),
    top_logprobs=([0, None], [2, "a"]),
    tools=([[], None], [[{"type": "web_search"}], "a"]),
    tool_choice=(["auto", "none", None], ["required", {"type": "function", "name": "f"}]),
    previous_response_id=([None], ["resp_1", 1]),
    conversation=([None], ["conv_1", {"id": "conv_1"}]),
    prompt=([None], [{"id": "a"}]),
    background=([False, None], [True]),
    background_options=([None], [{}]),
    max_tool_calls=([3, None], ["a"]),
    context_management=([[], None], [[{"type": "compaction"}]]),
    moderation=([None], [{"model": "a"}]),
    access_programs=([None], [{}]),
    image=([None], [{}]),
)
ENDPOINTS: dict[str, tuple[dict[str, Any], dict[str, Field]]] = {
    "/v1/chat/completions": ({"messages": HELLO, "max_completion_tokens": 1}, CHAT),
    "/v1/completions": ({"prompt": "hello", "max_tokens": 1}, COMPLETION),
    "/v1/responses": ({"input": "hello", "max_output_tokens": 1}, RESPONSE),
}
