"""Clients that others wrote against infer serve: scripts/try-clients starts it. usage: try-clients.py URL RECITED, the latter without /v1, of a server that says a
call of the tool weather"""
import asyncio, json, math, os, sys, tempfile, time, urllib.error, urllib.request
import openai, pydantic

url, recited = sys.argv[1], sys.argv[2]
came = {} # client -> [what failed, how many were tried]

def check(name):
    """name: "CLIENT: what is tried" """
    def run(f):
        begin, of = time.monotonic(), came.setdefault(name.split(":")[0], [[], 0])
        of[1] += 1
        try: f()
        except Exception as e:
            of[0].append(name.split(": ", 1)[1])
            print(f"FAILED  {name}: {type(e).__name__}: {str(e)[:300]}", flush=True)
        else: print(f"{time.monotonic() - begin:6.2f} s  {name}", flush=True)
    return run

loop = asyncio.new_event_loop() # of all clients: they keep connections in it

def wait(what): return loop.run_until_complete(what)

client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
model = client.models.list().data[0].id
ask = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]

class City(pydantic.BaseModel):
    city: str
    inhabitants: int

parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": parameters}}

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
    first = client.chat.completions.create(model=model, messages=ask, tools=[TOOL], max_tokens=30, temperature=0)
    assert first.choices[0].finish_reason in ("stop", "length", "tool_calls")
    again = ask + [{"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
                   {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    assert client.chat.completions.create(model=model, messages=again, tools=[TOOL], max_tokens=30).choices

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
    assert len([t for t in wait(all()) if t]) == 16

@check("litellm: plain, streamed")
def _():
    import litellm
    r = litellm.completion(model="openai/" + model, api_base=url, api_key="none", messages=ask, max_tokens=20)
    assert r.choices[0].message.content
    assert "".join(p.choices[0].delta.content or "" for p in litellm.completion(model="openai/" + model, api_base=url, api_key="none", messages=ask, max_tokens=20, stream=True))

@check("instructor: a schema")
def _():
    import instructor
    c = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    assert isinstance(c.chat.completions.create(model=model, messages=ask, response_model=City, max_tokens=200, temperature=0), City)

@check("langchain-openai: plain, streamed")
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

@check("openai: infill, as editors send it")
def _():
    body = json.dumps({"input_prefix": "def f(x):\n    return ", "input_suffix": "\n", "n_predict": 8, "samplers": ["top_k", "top_p", "infill"]}).encode()
    try: assert "content" in json.load(urllib.request.urlopen(url.removesuffix("/v1") + "/infill", body, 60))
    except urllib.error.HTTPError as e: assert e.code == 400 and "no tokens for filling in" in json.load(e)["error"]["message"]

# ---- loops: a call, its result, an answer; the model's part is recited ----

SUNNY = "It is sunny."

reciting = openai.OpenAI(base_url=recited + "/v1", api_key="none", max_retries=0)

@check("openai: a loop of tools by chat, streamed and whole")
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
            if turn: assert m.content == SUNNY and not m.tool_calls, m
            else: assert m.content == "Let me look." and json.loads(m.tool_calls[0].function.arguments) == {"city": "Paris"}, m
            if not turn: messages += [m.model_dump(exclude_none=True, exclude={"parsed"}), {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "sunny"}]

@check("openai: a loop of tools by responses")
def _():
    tool = {"type": "function", "name": "weather", "parameters": parameters, "strict": True}
    items = [{"role": "user", "content": "What is the weather?"}]
    for turn in range(2):
        r = reciting.responses.create(model="m", input=items, tools=[tool], reasoning={"effort": "low"})
        calls = [i for i in r.output if i.type == "function_call"]
        if turn: assert r.output_text == SUNNY and not calls, r
        else: assert json.loads(calls[0].arguments) == {"city": "Paris"}, r
        items += [i.model_dump(exclude_none=True) for i in r.output] + [{"type": "function_call_output", "call_id": c.call_id, "output": "sunny"} for c in calls]

@check("anthropic: a loop of tools, thinking with a budget, streamed and whole; errors")
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
            if turn: assert kinds == ["text"] and m.content[0].text.startswith(SUNNY), m # said over and over until max_tokens
            else: assert kinds[:3] == ["thinking", "text", "tool_use"] and m.content[2].input == {"city": "Paris"}, m
            messages += [{"role": "assistant", "content": m.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": b.id, "content": "sunny"} for b in m.content if b.type == "tool_use"]}] if not turn else []
        assert c.messages.count_tokens(model="m", messages=messages, tools=[tool]).input_tokens > 20
    try: c.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "x" * 40000}])
    except anthropic.BadRequestError as e: assert "prompt is too long" in str(e), e
    else: raise AssertionError("no error")

@check("ollama: a loop of tools, and embeddings")
def _():
    import ollama
    c = ollama.Client(host=recited)
    messages = [{"role": "user", "content": "What is the weather?"}]
    for turn in range(2):
        m = c.chat("m", messages, tools=[{"type": "function", "function": {"name": "weather", "parameters": parameters}}]).message
        if turn: assert m.content == SUNNY, m
        else: assert m.tool_calls[0].function.arguments == {"city": "Paris"}, m
        if not turn: messages += [m, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
    assert "".join(p.message.content or "" for p in c.chat("m", messages, stream=True))
    assert len(ollama.Client(host=url.removesuffix("/v1")).embed(model, ["a", "b"]).embeddings) == 2

@check("langchain-openai: a loop of tools")
def _():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    c = ChatOpenAI(model="m", base_url=recited + "/v1", api_key="none").bind_tools([{"type": "function", "function": {"name": "weather", "parameters": parameters}}])
    messages = [HumanMessage("What is the weather?")]
    for turn in range(2):
        m = c.invoke(messages)
        if turn: assert m.content == SUNNY, m
        else: assert m.tool_calls[0]["args"] == {"city": "Paris"}, m
        if not turn: messages += [m, ToolMessage("sunny", tool_call_id=m.tool_calls[0]["id"])]


# ---- anthropic, ollama, litellm, instructor, langchain: with the model ----

@check("anthropic: plain, streamed, a forced tool")
def _():
    import anthropic
    c = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    kw = dict(model=model, max_tokens=30, messages=ask, extra_body={"temperature": 0}) # newer ones know no temperature
    text = c.messages.create(**kw).content[0].text
    with c.messages.stream(**kw) as s: assert "".join(s.text_stream) == text
    m = c.messages.create(**{**kw, "max_tokens": 200}, tools=[{"name": "weather", "input_schema": parameters}], tool_choice={"type": "tool", "name": "weather"})
    assert m.stop_reason == "tool_use" and isinstance(m.content[-1].input["city"], str), m

@check("ollama: plain, streamed, a schema, generate with its context, logprobs, errors")
def _():
    import ollama
    c = ollama.Client(host=url.removesuffix("/v1"))
    options = {"temperature": 0, "num_predict": 30}
    r = c.chat(model, ask, options=options)
    assert r.message.content == "".join(x.message.content for x in c.chat(model, ask, options=options, stream=True)), r
    City.model_validate_json(c.chat(model, ask, format=City.model_json_schema(), options={"temperature": 0, "num_predict": 200}).message.content)
    first = c.generate(model, "Say hello.", options=options)
    second = c.generate(model, "And again.", context=first.context, options=options)
    assert second.response and list(second.context[:len(first.context)]) == list(first.context)
    scored = c.generate(model, "Say hello.", options=options, logprobs=True, top_logprobs=2)
    assert len(scored.logprobs[0].top_logprobs) == 2, scored
    try: c.chat(model, [{"role": "user", "content": "word " * 200000}])
    except ollama.ResponseError as e: assert e.status_code == 400 and "maximum context length" in e.error, e
    else: raise AssertionError("no error")

@check("litellm: a forced tool, a schema")
def _():
    import litellm
    kw = dict(model="openai/" + model, api_base=url, api_key="none", messages=ask, max_tokens=200, temperature=0)
    r = litellm.completion(**kw, tools=[TOOL], tool_choice="required")
    assert "city" in json.loads(r.choices[0].message.tool_calls[0].function.arguments), r
    City.model_validate_json(litellm.completion(**kw, response_format=City).choices[0].message.content)

@check("instructor: tools of chat and of responses")
def _():
    import instructor
    for mode in ("TOOLS", "TOOLS_STRICT", "RESPONSES_TOOLS"):
        c = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none", max_retries=0), mode=getattr(instructor.Mode, mode))
        kw = dict(max_output_tokens=300) if mode == "RESPONSES_TOOLS" else dict(max_tokens=300)
        got = c.chat.completions.create(model=model, messages=ask, response_model=City, temperature=0, max_retries=1, **kw)
        assert isinstance(got, City), (mode, got)

@check("langchain-openai: a schema, a forced tool")
def _():
    from langchain_openai import ChatOpenAI
    c = ChatOpenAI(model=model, base_url=url, api_key="none", max_tokens=200, temperature=0)
    for method in ("json_schema", "function_calling"): assert isinstance(c.with_structured_output(City, method=method).invoke("Name a city."), City), method
    assert "city" in c.bind_tools([TOOL], tool_choice="weather").invoke("What is the weather?").tool_calls[0]["args"]

# ---- pydantic-ai ----

def pydantic_agent(base, name, **more):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    return Agent(OpenAIChatModel(name, provider=OpenAIProvider(base_url=base, api_key="none")), model_settings={"max_tokens": 300, "temperature": 0} if base == url else None, **more)

@check("pydantic-ai: plain, streamed")
def _():
    agent = pydantic_agent(url, model)
    text = wait(agent.run("Say hello.")).output
    async def stream():
        async with agent.run_stream("Say hello.") as r: return "".join([t async for t in r.stream_text(delta=True)])
    assert text and wait(stream()) == text

@check("pydantic-ai: a structured answer, as a tool and as a format")
def _():
    from pydantic_ai import NativeOutput
    for kind in (City, NativeOutput(City)): assert isinstance(wait(pydantic_agent(url, model, output_type=kind, retries=3).run("Name a city.")).output, City)

@check("pydantic-ai: a loop of tools, streamed and whole")
def _():
    asked = []
    agent = pydantic_agent(recited + "/v1", "m")
    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city"""
        asked.append(city)
        return "sunny"
    assert wait(agent.run("What is the weather?")).output == SUNNY
    async def stream():
        async with agent.run_stream("What is the weather?") as r: return await r.get_output()
    wait(stream())
    assert asked == ["Paris", "Paris"], asked

# ---- openai-agents ----

def agent_of(base, name, api, **more):
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    return Agent(name="a", model=kind(model=name, openai_client=openai.AsyncOpenAI(base_url=base, api_key="none")), model_settings=ModelSettings(max_tokens=300, temperature=0) if base == url else ModelSettings(), **more)

for api in ("responses", "chat"):
    @check(f"openai-agents: {api}: plain, streamed, a structured answer")
    def _():
        from agents import Runner
        async def all():
            text = (await Runner.run(agent_of(url, model, api), "Say hello.")).final_output
            s = Runner.run_streamed(agent_of(url, model, api), "Say hello.")
            async for _ in s.stream_events(): pass
            assert text and s.final_output == text, (text, s.final_output)
            assert isinstance((await Runner.run(agent_of(url, model, api, output_type=City), "Name a city.")).final_output, City)
        wait(all())

    @check(f"openai-agents: {api}: a loop of tools, streamed and whole")
    def _():
        from agents import Runner, function_tool
        asked = []
        @function_tool
        def weather(city: str) -> str:
            """The weather in a city"""
            asked.append(city)
            return "sunny"
        async def all():
            assert (await Runner.run(agent_of(recited + "/v1", "m", api, tools=[weather]), "What is the weather?")).final_output == SUNNY
            s = Runner.run_streamed(agent_of(recited + "/v1", "m", api, tools=[weather]), "What is the weather?")
            async for _ in s.stream_events(): pass
            assert s.final_output == SUNNY
        wait(all())
        assert asked == ["Paris", "Paris"], asked

# ---- llama-index ----

def llama_index(base, name):
    from llama_index.llms.openai_like import OpenAILike
    return OpenAILike(model=name, api_base=base, api_key="none", is_chat_model=True, is_function_calling_model=True, max_tokens=300, temperature=0, context_window=2048)

@check("llama-index: plain, streamed, completions")
def _():
    from llama_index.core.llms import ChatMessage
    llm = llama_index(url, model)
    text = llm.chat([ChatMessage(role="user", content="Say hello.")]).message.content
    assert text and "".join(p.delta or "" for p in llm.stream_chat([ChatMessage(role="user", content="Say hello.")])) == text
    assert llm.complete("Say hello.").text

@check("llama-index: a structured answer")
def _(): assert isinstance(llama_index(url, model).as_structured_llm(City).complete("Name a city.").raw, City)

@check("llama-index: a call of a tool, and its result")
def _():
    from llama_index.core.tools import FunctionTool
    def weather(city: str) -> str:
        """The weather in a city"""
        return "sunny"
    r = llama_index(recited + "/v1", "m").predict_and_call([FunctionTool.from_defaults(weather)], "What is the weather?")
    assert r.sources[0].raw_input["kwargs"] == {"city": "Paris"} and str(r) == "sunny", r

# ---- huggingface_hub ----

@check("huggingface_hub: plain, streamed, log probabilities")
def _():
    from huggingface_hub import InferenceClient
    for base in (url, url.removesuffix("/v1")):
        c = InferenceClient(base_url=base, api_key="none")
        kw = dict(messages=ask, max_tokens=30, temperature=0)
        r = c.chat_completion(**kw, logprobs=True, top_logprobs=2)
        assert r.choices[0].message.content == "".join(p.choices[0].delta.content or "" for p in c.chat_completion(**kw, stream=True)) and len(r.choices[0].logprobs.content[0].top_logprobs) == 2, r

@check("huggingface_hub: a schema, a forced tool")
def _():
    from huggingface_hub import InferenceClient
    c = InferenceClient(base_url=url, api_key="none")
    form = {"type": "json_schema", "json_schema": {"name": "City", "schema": City.model_json_schema(), "strict": True}}
    City.model_validate_json(c.chat_completion(messages=ask, max_tokens=200, temperature=0, response_format=form).choices[0].message.content)
    r = c.chat_completion(messages=ask, max_tokens=200, temperature=0, tools=[TOOL], tool_choice={"function": {"name": "weather"}})
    assert "city" in json.loads(r.choices[0].message.tool_calls[0].function.arguments), r

@check("huggingface_hub: a loop of tools")
def _():
    from huggingface_hub import InferenceClient
    c = InferenceClient(base_url=recited + "/v1", api_key="none")
    m = c.chat_completion(messages=ask, tools=[TOOL]).choices[0].message
    assert json.loads(m.tool_calls[0].function.arguments) == {"city": "Paris"}, m
    more = [{"role": "assistant", "content": m.content, "tool_calls": [{"id": m.tool_calls[0].id, "type": "function", "function": {"name": "weather", "arguments": m.tool_calls[0].function.arguments}}]},
            {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "sunny"}]
    assert c.chat_completion(messages=ask + more, tools=[TOOL]).choices[0].message.content == SUNNY

# ---- lm-eval: a task of four lines, without a data set of others ----

LINES = [{"question": "The sky is", "choices": [" blue", " made of cheese"], "answer": 0}, {"question": "One, two,", "choices": [" banana", " three"], "answer": 1},
         {"question": "Paris is the capital of", "choices": [" France", " pudding"], "answer": 0}, {"question": "Dogs and", "choices": [" theorems", " cats"], "answer": 1}]

def evaluate(kind, path, tasks, chat=False, **more):
    """figures and samples of lm-eval on the lines"""
    import lm_eval
    from lm_eval.tasks import TaskManager
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/lines.jsonl", "w") as f: f.writelines(json.dumps(l) + "\n" for l in LINES)
        common = f'dataset_path: json\ndataset_kwargs:\n  data_files: {{test: "{d}/lines.jsonl"}}\ntest_split: test\ntarget_delimiter: ""\ndoc_to_text: "{{{{question}}}}"\n'
        with open(d + "/choose.yaml", "w") as f: f.write(common + 'task: choose\noutput_type: multiple_choice\ndoc_to_choice: "{{choices}}"\ndoc_to_target: answer\nmetric_list: [{metric: acc}]\n')
        with open(d + "/say.yaml", "w") as f:
            f.write(common + 'task: say\noutput_type: generate_until\ndoc_to_target: "{{choices[answer]}}"\ngeneration_kwargs: {until: ["\\n"], max_gen_toks: 16}\nmetric_list: [{metric: exact_match}]\n')
        return lm_eval.simple_evaluate(model=kind, model_args={"model": model, "base_url": url + path, "num_concurrent": 2, "max_retries": 1, **more}, tasks=tasks, task_manager=TaskManager(include_path=d, include_defaults=False),
                                       apply_chat_template=chat, bootstrap_iters=0, log_samples=True)

@check("lm-eval completions: scores by echo, with the server's tokenizer; answers")
def _():
    got = evaluate("local-completions", "/completions", ["choose", "say"], tokenizer_backend="remote")
    assert got["results"]["choose"]["acc,none"] >= 0.75, got["results"]
    for sample in got["samples"]["choose"]:
        for choice, (score, *_) in zip(sample["doc"]["choices"], sample["filtered_resps"]): # each is the sum over the choice's own tokens
            r = client.completions.create(model=model, prompt=sample["doc"]["question"] + choice, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs
            own = [l for l, at in zip(r.token_logprobs, r.text_offset) if at >= len(sample["doc"]["question"])]
            assert math.isclose(float(score), sum(own), abs_tol=1e-3), (sample["doc"], choice, score, own)
    assert all(s["filtered_resps"][0] for s in got["samples"]["say"]), got["samples"]["say"]

@check("lm-eval completions: auto finds the server's tokenizer")
def _(): assert evaluate("local-completions", "/completions", ["choose"])["results"]["choose"]["acc,none"] >= 0.75

@check("lm-eval chat: answers")
def _():
    got = evaluate("local-chat-completions", "/chat/completions", ["say"], chat=True)
    assert all(s["filtered_resps"][0] for s in got["samples"]["say"]), got["samples"]["say"]

print()
for name, (failed, n) in came.items(): print(f"{'FAILED' if failed else 'passed'}  {name} ({n - len(failed)} of {n})" + (": " + "; ".join(failed) if failed else ""))
sys.exit(any(failed for failed, _ in came.values()))
