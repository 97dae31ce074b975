"""Clients that others wrote against infer serve: scripts/try-clients starts it. usage: try-clients.py URL RECITED, the latter without /v1, of a server that says a
call of the tool weather"""
import asyncio, json, sys, time
import openai, pydantic

url, recited, failed = sys.argv[1], sys.argv[2], []

def check(name):
    def run(f):
        begin = time.monotonic()
        try: f()
        except Exception as e:
            failed.append(name)
            print(f"FAILED  {name}: {type(e).__name__}: {str(e)[:300]}")
        else: print(f"{time.monotonic() - begin:6.2f} s  {name}")
    return run

client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
model = client.models.list().data[0].id
ask = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]

class City(pydantic.BaseModel):
    city: str
    inhabitants: int

@check("openai: models")
def _(): assert client.models.retrieve(model).id == model

@check("openai: chat")
def _():
    r = client.chat.completions.create(model=model, messages=ask, temperature=0, max_tokens=40)
    assert r.choices[0].message.content and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, r

@check("openai: stream = whole")
def _():
    kw = dict(model=model, messages=ask, temperature=0.8, seed=3, max_tokens=40)
    whole = client.chat.completions.create(**kw).choices[0].message.content
    parts = list(client.chat.completions.create(**kw, stream=True, stream_options={"include_usage": True}))
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == whole
    assert parts[-1].usage.completion_tokens

@check("openai: stream helper")
def _():
    with client.chat.completions.stream(model=model, messages=ask, temperature=0, max_tokens=20) as s:
        kinds = {e.type for e in s}
        assert "content.delta" in kinds and "content.done" in kinds, kinds
        assert s.get_final_completion().choices[0].message.content

@check("openai: n, stop, logprobs, logit_bias")
def _():
    r = client.chat.completions.create(model=model, messages=ask, n=3, seed=1, logprobs=True, top_logprobs=2, stop=["."], max_tokens=30, logit_bias={"0": -100})
    assert len(r.choices) == 3 and all("." not in c.message.content and len(c.logprobs.content[0].top_logprobs) == 2 for c in r.choices), r

@check("openai: schema by pydantic")
def _():
    r = client.chat.completions.parse(model=model, messages=ask, response_format=City, max_tokens=200, temperature=0)
    assert isinstance(r.choices[0].message.parsed, City), r

@check("openai: json_object")
def _():
    r = client.chat.completions.create(model=model, messages=ask, response_format={"type": "json_object"}, max_tokens=300, temperature=0, frequency_penalty=1)
    if r.choices[0].finish_reason == "stop": json.loads(r.choices[0].message.content)

@check("openai: completions, echo and scores")
def _():
    r = client.completions.create(model=model, prompt=["Once upon a", "The sky is"], max_tokens=8, temperature=0, logprobs=1)
    assert len(r.choices) == 2
    r = client.completions.create(model=model, prompt="The sky is blue", max_tokens=0, echo=True, logprobs=1)
    assert r.choices[0].text == "The sky is blue" and r.choices[0].logprobs.token_logprobs[0] is None
    assert "".join(c.choices[0].text for c in client.completions.create(model=model, prompt="One, two,", max_tokens=8, stream=True))

@check("openai: tools are accepted")
def _():
    tool = {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    first = client.chat.completions.create(model=model, messages=ask, tools=[tool], max_tokens=30, temperature=0)
    assert first.choices[0].finish_reason in ("stop", "length", "tool_calls")
    again = ask + [{"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
                   {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    assert client.chat.completions.create(model=model, messages=again, tools=[tool], max_tokens=30).choices

@check("openai: errors by type")
def _():
    for kw, kind, code in ((dict(messages=[]), openai.BadRequestError, "invalid_value"), (dict(messages=ask, temperature=9), openai.BadRequestError, "invalid_value"),
                           (dict(messages=[{"role": "user", "content": "word " * 200000}]), openai.BadRequestError, "context_length_exceeded")):
        try: client.chat.completions.create(model=model, **kw)
        except kind as e: assert e.code == code, e
        else: raise AssertionError("no error")
    try: client.post("/nothing", cast_to=object, body={})
    except openai.NotFoundError: pass

@check("openai: a client's timeout and a closed stream")
def _():
    try: client.with_options(timeout=0.2).chat.completions.create(model=model, messages=ask, max_tokens=2000, extra_body={"ignore_eos": True})
    except openai.APITimeoutError: pass
    s = client.chat.completions.create(model=model, messages=ask, max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
    next(iter(s))
    s.close()
    begin = time.monotonic()
    client.chat.completions.create(model=model, messages=ask, max_tokens=1)
    assert time.monotonic() - begin < 5

@check("openai: sixteen at once, async")
def _():
    async def all():
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as c:
            async def one(i):
                text = ""
                async for p in await c.chat.completions.create(model=model, messages=ask, max_tokens=16, seed=i, stream=True): text += p.choices[0].delta.content or ""
                return text
            return await asyncio.gather(*(one(i) for i in range(16)))
    assert len([t for t in asyncio.run(all()) if t]) == 16

@check("litellm")
def _():
    import litellm
    r = litellm.completion(model="openai/" + model, api_base=url, api_key="none", messages=ask, max_tokens=20)
    assert r.choices[0].message.content
    assert "".join(p.choices[0].delta.content or "" for p in litellm.completion(model="openai/" + model, api_base=url, api_key="none", messages=ask, max_tokens=20, stream=True))

@check("instructor")
def _():
    import instructor
    c = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    assert isinstance(c.chat.completions.create(model=model, messages=ask, response_model=City, max_tokens=200, temperature=0), City)

@check("langchain-openai")
def _():
    from langchain_openai import ChatOpenAI
    c = ChatOpenAI(model=model, base_url=url, api_key="none", max_tokens=20)
    assert c.invoke("Say hello").content and "".join(x.content for x in c.stream("Say hello"))

@check("openai: embeddings")
def _():
    r = client.embeddings.create(model=model, input=["a cat", "a dog", "the sum of two numbers"])
    assert len(r.data) == 3 and r.usage.total_tokens and abs(sum(x * x for x in r.data[0].embedding) - 1) < 1e-4, r
    plain = client.embeddings.create(model=model, input="a cat", encoding_format="float", dimensions=16)
    assert len(plain.data[0].embedding) == 16

@check("openai: responses, streamed and whole")
def _():
    r = client.responses.create(model=model, input="Say hello.", max_output_tokens=400, temperature=0)
    assert r.output_text
    with client.responses.stream(model=model, input="Say hello.", max_output_tokens=400, temperature=0) as s:
        for _ in s: pass
        assert s.get_final_response().output_text == r.output_text

@check("infill, as editors send it")
def _():
    import urllib.request, urllib.error
    body = json.dumps({"input_prefix": "def f(x):\n    return ", "input_suffix": "\n", "n_predict": 8, "samplers": ["top_k", "top_p", "infill"]}).encode()
    try: assert "content" in json.load(urllib.request.urlopen(url.removesuffix("/v1") + "/infill", body, 60))
    except urllib.error.HTTPError as e: assert e.code == 400 and "no tokens for filling in" in json.load(e)["error"]["message"]

# ---- loops: a call, its result, an answer; the model's part is recited ----

parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
reciting = openai.OpenAI(base_url=recited + "/v1", api_key="none", max_retries=0)

@check("loop: openai, chat, streamed and whole")
def _():
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters, "strict": True}}
    for stream in (False, True):
        messages = list(ask)
        for turn in range(2):
            kw = dict(model="m", messages=messages, tools=[tool], reasoning_effort="low", extra_body={"thinking_budget_tokens": 50})
            if stream:
                with reciting.chat.completions.stream(**kw) as s:
                    for _ in s: pass
                    m = s.get_final_completion().choices[0].message
            else: m = reciting.chat.completions.create(**kw).choices[0].message
            assert m.content == "Let me look." and json.loads(m.tool_calls[0].function.arguments) == {"city": "Paris"}, m
            messages += [m.model_dump(exclude_none=True, exclude={"parsed"}), {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "sunny"}]

@check("loop: openai, responses")
def _():
    tool = {"type": "function", "name": "weather", "parameters": parameters, "strict": True}
    items = [{"role": "user", "content": "What is the weather?"}]
    for turn in range(2):
        r = reciting.responses.create(model="m", input=items, tools=[tool], reasoning={"effort": "low"})
        calls = [i for i in r.output if i.type == "function_call"]
        assert calls and json.loads(calls[0].arguments) == {"city": "Paris"}, r
        items += [i.model_dump(exclude_none=True) for i in r.output] + [{"type": "function_call_output", "call_id": c.call_id, "output": "sunny"} for c in calls]

@check("loop: anthropic, thinking with a budget, streamed and whole; errors")
def _():
    import anthropic
    c = anthropic.Anthropic(base_url=recited, api_key="none", max_retries=0)
    tool = {"name": "weather", "input_schema": parameters}
    for stream in (False, True):
        messages = [{"role": "user", "content": "What is the weather?"}]
        for turn in range(2):
            kw = dict(model="m", max_tokens=300, messages=messages, tools=[tool], thinking={"type": "enabled", "budget_tokens": 1024})
            if stream:
                with c.messages.stream(**kw) as s: m = s.get_final_message()
            else: m = c.messages.create(**kw)
            kinds = [b.type for b in m.content]
            assert kinds[:3] == ["thinking", "text", "tool_use"], kinds
            assert m.content[2].input == {"city": "Paris"}
            messages += [{"role": "assistant", "content": m.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": b.id, "content": "sunny"} for b in m.content if b.type == "tool_use"]}]
        assert c.messages.count_tokens(model="m", messages=messages, tools=[tool]).input_tokens > 20
    try: c.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "x" * 40000}])
    except anthropic.BadRequestError as e: assert "prompt is too long" in str(e), e
    else: raise AssertionError("no error")

@check("loop: ollama, and its embeddings")
def _():
    import ollama
    c = ollama.Client(host=recited)
    messages = [{"role": "user", "content": "What is the weather?"}]
    for turn in range(2):
        m = c.chat("m", messages, tools=[{"type": "function", "function": {"name": "weather", "parameters": parameters}}]).message
        assert m.tool_calls[0].function.arguments == {"city": "Paris"}, m
        messages += [m, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
    assert "".join(p.message.content or "" for p in c.chat("m", messages, stream=True))
    assert len(ollama.Client(host=url.removesuffix("/v1")).embed(model, ["a", "b"]).embeddings) == 2

@check("loop: langchain-openai, tools in two rounds")
def _():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    c = ChatOpenAI(model="m", base_url=recited + "/v1", api_key="none").bind_tools([{"type": "function", "function": {"name": "weather", "parameters": parameters}}])
    messages = [HumanMessage("What is the weather?")]
    for turn in range(2):
        m = c.invoke(messages)
        assert m.tool_calls[0]["args"] == {"city": "Paris"}, m
        messages += [m, ToolMessage("sunny", tool_call_id=m.tool_calls[0]["id"])]

print("failed: " + ", ".join(failed) if failed else "all work")
sys.exit(bool(failed))
