"""Clients that others wrote against infer serve: scripts/try-clients starts it. usage: try-clients.py URL"""
import asyncio, json, sys, time
import openai, pydantic

url, failed = sys.argv[1], []

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

print("failed: " + ", ".join(failed) if failed else "all work")
sys.exit(bool(failed))
