"""What cffi is told of infer.h and infer_request.h. Functions, enums, options and sampling parameters are read from the headers as installed; structs that
the module looks into are named here with the fields that it uses, and the compiler checks their types."""
import re, shlex, subprocess
from cffi import FFI


def pkg_config(*args): return shlex.split(subprocess.run(["pkg-config", *args, "infer"], check=True, capture_output=True, text=True).stdout)


include = pkg_config("--variable=includedir")[0]


def read(name):
    with open(include + "/" + name, encoding="utf-8") as f: return re.sub(r"/\*.*?\*/|//[^\n]*", "", f.read(), flags=re.S)


headers = read("infer_status.h") + read("infer.h") + read("infer_sample.h") + read("infer_request.h")


def enum(name): return re.search(r"^enum %s \{[^}]*\};" % name, headers, re.M)[0]


def function(name): return re.search(r"^(?:const |enum |struct |bool |int |void )[^;{}()]*\b%s\([^;{}]*\);" % name, headers, re.M)[0]


C = {"INT": "int", "FLAG": "bool", "SWITCH": "bool", "NUMBER": "double", "BYTES": "uint64_t", "TEXT": "const char *"}
options = re.findall(r"^INFER_(?:OPTION|FIELD)\(\w+, (\w+), (\w+)", read("infer_options.def"), re.M)
samples = re.findall(r"^INFER_SAMPLE\((\w+), (\w+)", read("infer_sample.def"), re.M)

ffi = FFI()
ffi.cdef("""
struct json_t;
struct json_t *json_loads(const char *text, size_t flags, void *error);
void json_decref(struct json_t *);
struct infer_model; struct infer_engine; struct infer_sched; struct infer_request;
struct infer_grammar; struct infer_grammar_vocab; struct infer_constraint; struct infer_model_options; struct infer_top;
struct infer_model_info { const char *arch, *format, *name; size_t name_len; const char *type_name; int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab,
    n_ctx_train; uint64_t n_param, file_bytes; bool has_tokenizer; const char *chat_template; size_t chat_template_len; ...; };
struct infer_engine_info { const char *device, *device_name, *isa; int n_ctx, n_slot, n_batch, n_thread, n_logits; uint64_t device_bytes; ...; };
struct infer_row { int32_t id, pos, seq; bool decode; uint8_t want; ...; };
struct infer_output { int n; const int32_t *token; const float *const *logits; ...; };
struct infer_prompt { int32_t *ids; int n; ...; };
struct infer_sample_params { %s uint64_t seed; ...; };
struct infer_engine_options { %s ...; };
struct infer_logprob { int32_t id; float logprob; };
struct infer_logprobs { int n_top, n; ...; };
struct infer_request_figures { int n_reused, n_prompt, n_answer, n_decoded; double prompt_seconds, answer_seconds; ...; };
%s
struct infer_request_params { int priority; const int32_t *ids; int n_id; struct infer_sample_params sample; struct infer_constraint *constraint;
    const char *const *stop; int n_stop; bool special; enum infer_request_make make; int min_tokens, n_predict; bool loop_stop; int n_logprob; ...; };
""" % (" ".join("%s %s;" % ("float" if t == "NUMBER" else "int", f) for t, f in samples), " ".join("%s %s;" % (C[t], f) for t, f in options),
       "\n".join(enum(e) for e in ("infer_status", "infer_grammar_kind", "infer_want", "infer_tok_flags", "infer_request_why", "infer_request_make")))
    + "\n".join(function(f) for f in """infer_error infer_version infer_model_open infer_model_close infer_model_info infer_tokenize infer_piece infer_is_stop
    infer_engine_create infer_engine_free infer_engine_info infer_plan_text infer_seq_open infer_seq_close infer_step infer_cancel infer_prompt_text infer_prompt_free
    infer_grammar_open infer_grammar_free infer_grammar_vocab_open infer_grammar_vocab_close infer_constraint_open
    infer_constraint_close infer_sched_open infer_sched_close infer_sched_step infer_request_defaults infer_request_prompt infer_request_new infer_request_chat
    infer_request_free infer_request_cancel infer_request_why infer_request_done infer_request_status infer_request_text infer_request_logprobs infer_logprobs_at
    infer_request_made infer_request_figures""".split()))
ffi.set_source("infer._infer", "#define json_t json_t\n#include <jansson.h>\n#include <infer_request.h>", extra_compile_args=pkg_config("--cflags"),
               extra_link_args=pkg_config("--libs", "--static"))
