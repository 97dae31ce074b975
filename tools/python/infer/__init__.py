"""Large language models from one file: infer.h and infer_request.h for Python.

    model = infer.Model("model.gguf")
    with infer.Engine(model, ctx=4096, slots=2) as engine:
        for part in engine.request([{"role": "user", "content": "hello"}], temp=0.7): print(part, end="")

Options of engines and parameters of requests have the names that they have in C (infer_options.def, infer_sample.def, struct infer_request_params),
and messages of errors name them so. docs/python.md has more."""
from __future__ import annotations

import json
import threading
from typing import Any, Iterator, Mapping, Sequence, Union

import numpy
import numpy.typing

from ._infer import ffi, lib

__all__ = ["Engine", "Error", "Model", "Request", "version"]
Floats = numpy.typing.NDArray[numpy.float32]
Prompt = Union[str, Sequence[int], Sequence[Mapping[str, Any]]]


class Error(Exception):
    """What a function of the library refused. status: its name, "INFER_E_FULL"."""

    def __init__(self, status: int) -> None:
        super().__init__(_text(lib.infer_error()))
        self.status: str = ffi.string(ffi.cast("enum infer_status", status))


def _text(s: Any) -> str:
    return ffi.string(s).decode("utf-8", "replace") if s else ""


def _check(status: int) -> None:
    if status: raise Error(status)


def _made(kind: str, function: Any, *args: Any) -> Any:
    out = ffi.new(kind + " **")
    _check(function(out, *args))
    return out[0]


def _fill(struct: Any, values: Mapping[str, Any], keep: list[Any]) -> None:
    fields = dict(ffi.typeof(struct[0]).fields)
    for name, value in values.items():
        if name not in fields: raise TypeError("no option %r; there are %s" % (name, ", ".join(sorted(fields))))
        if isinstance(value, str):
            keep.append(ffi.new("char[]", value.encode()))
            value = keep[-1]
        setattr(struct, name, value)


def _view(struct: Any) -> dict[str, Any]:
    values = {name: getattr(struct, name) for name in dir(struct)}
    return {k: _text(v) if isinstance(v, ffi.CData) else v for k, v in values.items()}


def version() -> str:
    return _text(lib.infer_version())


class Model:
    """A file, mapped; shared by engines and threads, gone with the last of them. info: struct infer_model_info."""

    def __init__(self, path: str) -> None:
        self._model = ffi.gc(_made("struct infer_model", lib.infer_model_open, path.encode(), ffi.NULL), lib.infer_model_close)
        info = ffi.new("struct infer_model_info *")
        lib.infer_model_info(self._model, info)
        self.info: dict[str, Any] = _view(info)
        self.info["name"] = ffi.buffer(info.name, info.name_len)[:].decode("utf-8", "replace") if info.name else ""
        template = ffi.buffer(info.chat_template, info.chat_template_len)[:].decode("utf-8", "replace") if info.chat_template else None
        self.info["chat_template"] = template

    def tokenize(self, text: str, add: bool = True, special: bool = False) -> list[int]:
        """add: what the model adds in front; special: control tokens in the text are tokens."""
        data, n = text.encode(), ffi.new("size_t *")
        flags = (lib.INFER_TOK_ADD if add else 0) | (lib.INFER_TOK_SPECIAL if special else 0)
        ids = ffi.new("int32_t[]", len(data) + 16)
        _check(lib.infer_tokenize(self._model, data, ffi.NULL, len(data), flags, ids, len(ids), n))
        return list(ids[0 : n[0]])

    def piece(self, id: int, special: bool = False, first: bool = False) -> bytes:
        """A token's bytes, which need not be whole characters."""
        if not 0 <= id < self.info["n_vocab"]: raise IndexError(id)
        n = ffi.new("size_t *")
        return bytes(ffi.buffer(lib.infer_piece(self._model, id, special, first, n), n[0]))

    def text(self, ids: Sequence[int], special: bool = False) -> str:
        return b"".join(self.piece(t, special, i == 0) for i, t in enumerate(ids)).decode("utf-8", "replace")

    def is_stop(self, id: int) -> bool:
        return bool(lib.infer_is_stop(self._model, id))


class Engine:
    """A model on a device, with all memory that it takes (plan says how much). options: rows of infer_options.def, ctx=4096, slots=8, device="cpu".
    Requests of one engine are computed side by side, whichever of them is read; threads take turns."""

    def __init__(self, model: Model, **options: Any) -> None:
        self._engine, self._sched, self._vocab = ffi.NULL, ffi.NULL, ffi.NULL
        self.model, self._lock = model, threading.RLock()
        keep: list[Any] = []
        o = ffi.new("struct infer_engine_options *", {"gpu_layers": -1, "cpu_experts": -1})
        _fill(o, options, keep)
        self._engine = _made("struct infer_engine", lib.infer_engine_create, model._model, o)
        self._sched = _made("struct infer_sched", lib.infer_sched_open, self._engine, model._model)
        info = ffi.new("struct infer_engine_info *")
        lib.infer_engine_info(self._engine, info)
        self.info: dict[str, Any] = _view(info)

    def close(self) -> None:
        with self._lock:
            if self._sched: lib.infer_sched_close(self._sched)  # with its requests
            if self._engine: lib.infer_engine_free(self._engine)
            if self._vocab: lib.infer_grammar_vocab_close(self._vocab)
            self._engine, self._sched, self._vocab = ffi.NULL, ffi.NULL, ffi.NULL

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_lock"): self.close()

    def _open(self) -> Any:
        if not self._engine: raise ValueError("the engine is closed")
        return self._engine

    @property
    def plan(self) -> str:
        return _text(lib.infer_plan_text(self._open()))

    def request(self, prompt: Prompt, **params: Any) -> Request:
        """A request, which runs while it or another one of the engine is read. prompt: messages for the chat template, a text as it is, or ids.
        params: of the sampler (temp, top_p, seed ..), n_predict, stop (texts), min_tokens, loop_stop, n_logprob, special, priority;
        what the answer has to be: json_schema (a dict or text), grammar (GBNF or Lark), regex, or structural_tag (a dict or text)."""
        return Request(self, prompt, params)

    def logits(self, ids: Sequence[int], all: bool = False) -> Floats:
        """The logits behind the last of ids, [n_vocab]; all: behind each, [len(ids), n_vocab] (quick with the option all_logits=True)."""
        if not len(ids): raise ValueError("no ids")
        n_vocab, seq, out = self.model.info["n_vocab"], ffi.new("int *"), ffi.new("struct infer_output *")
        made = numpy.empty((len(ids) if all else 1, n_vocab), numpy.float32)
        with self._lock:
            _check(lib.infer_seq_open(self._open(), seq))
            try:
                most = min(self.info["n_batch"], self.info["n_logits"]) if all else self.info["n_batch"]
                for at in range(0, len(ids), most):
                    part = ids[at : at + most]
                    rows = ffi.new("struct infer_row[]", len(part))
                    for i, id in enumerate(part):
                        rows[i].id, rows[i].pos, rows[i].seq = id, at + i, seq[0]
                        rows[i].want = lib.INFER_WANT_LOGITS if all or at + i == len(ids) - 1 else 0
                    _check(lib.infer_step(self._engine, rows, len(part), out))
                    for i in range(out.n): made[at + i if all else 0] = numpy.frombuffer(ffi.buffer(out.logits[i], 4 * n_vocab), numpy.float32)
            finally:
                lib.infer_seq_close(self._engine, seq[0])
        return made if all else made[0]

    def embed(self, prompt: Prompt, of: str = "mean") -> Floats:
        """What the model makes of a prompt, [n_embd]: of its "last" token, its "first", or the "mean". Of an engine with the option hidden=True."""
        with self.request(prompt, make=getattr(lib, "INFER_MAKE_" + of.upper())) as request:
            for _ in request: pass
            n = ffi.new("int *")
            made = lib.infer_request_made(request._request, n)
            return numpy.frombuffer(ffi.buffer(made, 4 * n[0]), numpy.float32).copy()


FORMS = {"json_schema": "SCHEMA", "grammar": "TEXT", "regex": "REGEX", "structural_tag": "TAGS"}


class Request:
    """An answer as it comes: iterating gives its parts, whole characters each. close, or the end of `with`, gives its sequence back before its end."""

    def __init__(self, engine: Engine, prompt: Prompt, params: Mapping[str, Any]) -> None:
        self._request, self.engine, self._keep, given = ffi.NULL, engine, [], dict(params)
        self._shown = 0
        self._constraint = self._grammar = self._prompt = None
        p = ffi.new("struct infer_request_params *", lib.infer_request_defaults())
        stop = [ffi.new("char[]", s.encode()) for s in given.pop("stop", ())]
        stops = ffi.new("char *[]", stop)
        p.stop, p.n_stop = stops, len(stop)
        self._keep += [p, stop, stops]
        sample = {f for f, _ in ffi.typeof("struct infer_sample_params").fields}
        with engine._lock:
            engine._open()
            for kind in FORMS:
                if given.get(kind) is not None: p.constraint = self._constrained(kind, given[kind])
                given.pop(kind, None)
            _fill(ffi.addressof(p, "sample"), {k: given.pop(k) for k in list(given) if k in sample}, self._keep)
            _fill(p, given, self._keep)
            self._request = self._begin(prompt, p)

    def _constrained(self, kind: str, value: Any) -> Any:
        e, number = self.engine, getattr(lib, "INFER_GRAMMAR_" + FORMS[kind])
        if not e._vocab: e._vocab = _made("struct infer_grammar_vocab", lib.infer_grammar_vocab_open, e.model._model)
        text = (value if isinstance(value, str) else json.dumps(value)).encode()
        self._grammar = ffi.gc(_made("struct infer_grammar", lib.infer_grammar_open, number, text, len(text)), lib.infer_grammar_free)
        made = _made("struct infer_constraint", lib.infer_constraint_open, self._grammar, e._vocab, e.model.info["n_vocab"])
        self._constraint = ffi.gc(made, lib.infer_constraint_close)
        return self._constraint

    def _begin(self, prompt: Prompt, p: Any) -> Any:
        sched = self.engine._sched
        if not isinstance(prompt, str) and len(prompt) and isinstance(prompt[0], Mapping):
            messages = lib.json_loads(json.dumps(list(prompt)).encode(), 0, ffi.NULL)
            try: return _made("struct infer_request", lib.infer_request_chat, sched, p, messages)
            finally: lib.json_decref(messages)
        if isinstance(prompt, str):
            data, made = prompt.encode(), ffi.new("struct infer_prompt *")
            self._prompt = ffi.gc(made, lib.infer_prompt_free)
            _check(lib.infer_prompt_text(made, self.engine.model._model, data, len(data), True))
            lib.infer_request_prompt(p, made, False)
        else:
            ids = ffi.new("int32_t[]", list(prompt))
            p.ids, p.n_id = ids, len(prompt)
            self._keep.append(ids)
        return _made("struct infer_request", lib.infer_request_new, sched, p)

    def _there(self) -> Any:
        if not self._request or not self.engine._sched: raise ValueError("the request is closed")
        return self._request

    def _read(self, thinking: bool, since: int = 0) -> bytes:
        n = ffi.new("size_t *")
        with self.engine._lock:
            text = lib.infer_request_text(self._there(), thinking, n)
            return bytes(ffi.buffer(text, n[0])[since:]) if text else b""

    def __iter__(self) -> Iterator[str]:
        while True:
            with self.engine._lock:
                part, done = self._read(False, self._shown), self.done
                self._shown += len(part)
                if not part and not done: lib.infer_sched_step(self.engine._sched)
            if part: yield part.decode("utf-8", "replace")
            elif done: break
        with self.engine._lock: _check(lib.infer_request_status(self._there()))

    def run(self) -> str:
        """The whole answer."""
        for _ in self: pass
        return self.text

    def cancel(self) -> None:
        """Ends the answer where it is; any thread."""
        lib.infer_request_cancel(self._there())

    def close(self) -> None:
        with self.engine._lock:
            if self._request and self.engine._sched: lib.infer_request_free(self._request)
            self._request = ffi.NULL

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._read(False).decode("utf-8", "replace")

    @property
    def thinking(self) -> str:
        """What the model thought before it, so far."""
        return self._read(True).decode("utf-8", "replace")

    @property
    def done(self) -> bool:
        return bool(lib.infer_request_done(self._there()))

    @property
    def why(self) -> str:
        """Why it ended: "turn", "stop", "limit", "full", "cancelled", "loop", "failed"; "runs"."""
        return str(ffi.string(ffi.cast("enum infer_request_why", lib.infer_request_why(self._there())))[len("INFER_REQUEST_") :].lower())

    @property
    def figures(self) -> dict[str, Any]:
        """Tokens and seconds (struct infer_request_figures)."""
        return _view(lib.infer_request_figures(self._there()))

    @property
    def logprobs(self) -> list[list[tuple[int, float]]]:
        """With n_logprob=N: of each token of the answer, with the one that ended it, its id and ln of its probability, then the N likeliest at its place."""
        with self.engine._lock:
            p = lib.infer_request_logprobs(self._there())
            rows = [lib.infer_logprobs_at(p, i)[0 : 1 + p.n_top] for i in range(p.n)] if p.n_top >= 0 else []
            return [[(e.id, e.logprob) for e in row if e.id >= 0] for row in rows]
