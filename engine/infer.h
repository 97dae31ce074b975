/* infer: run a large language model from one file, on the GPU or the CPU.
 *
 *     // answer MODEL TEXT: the first tokens of the answer, as they come
 *     #include <infer.h>
 *     #include <stdio.h>
 *     #include <string.h>
 *
 *     static int32_t ids[512];
 *     static struct infer_row rows[512];
 *
 *     static int failed(void) {
 *         fprintf(stderr, "%s\n", infer_error());
 *         return 1;
 *     }
 *
 *     int main(int argc, char **argv) {
 *         struct infer_model *m;
 *         struct infer_engine *e;
 *         struct infer_output out;
 *         size_t n;
 *         int seq;
 *         if (argc != 3) return 2;
 *         if (infer_model_open(&m, argv[1], NULL)) return failed();
 *         if (infer_engine_create(&e, m, NULL)) return failed(); // plan, placement, upload: all memory is taken here
 *         if (infer_tokenize(m, argv[2], NULL, strlen(argv[2]), INFER_TOK_ADD | INFER_TOK_SPECIAL, ids, 512, &n))
 *             return failed();
 *         if (n == 0 || n > 512) return 2; // nothing, or more than ids holds
 *         if (infer_seq_open(e, &seq)) return failed();
 *
 *         for (size_t i = 0; i < n; i++) { // the prompt: rows of class prompt, the last wants a token
 *             rows[i].id = ids[i];
 *             rows[i].pos = (int32_t)i;
 *             rows[i].seq = seq;
 *         }
 *         rows[n - 1].want = INFER_WANT_TOKEN;
 *         if (infer_step(e, rows, (int)n, &out)) return failed();
 *
 *         struct infer_row row = rows[n - 1]; // the answer: one row of class decode after the other
 *         row.id = INFER_LAST;
 *         row.decode = true;
 *         for (int i = 0; i < 64 && !infer_is_stop(m, out.token[0]); i++) {
 *             size_t len;
 *             const char *piece = infer_piece(m, out.token[0], false, i == 0, &len);
 *             fwrite(piece, 1, len, stdout);
 *             fflush(stdout);
 *             row.pos++;
 *             if (infer_step(e, &row, 1, &out)) return failed();
 *         }
 *         infer_engine_free(e);
 *         infer_model_close(m);
 *         return 0;
 *     }
 *
 * Build it with: cc answer.c $(pkg-config --cflags --libs --static infer)
 *
 * A model is the file: mapped, immutable, shared between threads. An engine is a model placed on a device
 * with a plan; one thread uses it at a time, but infer_cancel may come from any thread or a signal handler. A
 * sequence is one timeline of tokens in the engine's KV pages. Every function that returns enum infer_status
 * leaves a message for the calling thread in infer_error() when it fails. From infer_engine_create on,
 * nothing under infer_submit and infer_wait allocates. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "infer_status.h"
#include "infer_draw.h"
#include "infer_profile.h"
#include "infer_group.h"

#ifdef __cplusplus
extern "C" {
#endif

struct infer_model;
struct infer_engine;

/* This thread's last message, "" if none. It names the options that it is about by their fields, a dot in front: ".ctx". */
const char *infer_error(void);
/* "0.1.0 (gcc 12.2, cuda 13.0: sm_80 sm_90a sm_120f)" */
const char *infer_version(void);
/* Toolkit and kernel images of the CUDA backend, "13.0: sm_80 sm_90a sm_120f compute_90"; "" in a build without. */
const char *infer_cuda_build(void);

/* ---- model --------------------------------------------------------------------------------------------- */

struct infer_model_options {
    bool no_mmap; /* read the file into memory */
    bool mlock;   /* lock its pages */
    bool vocab_only;
    bool sparse_ok; /* holes of a file, which a download that broke off leaves, are zeros that are meant */
    const char *const
        *ignore_keys; /* ignore_keys[n_ignore_key]: keys of the file that this build does not know and
                                       that change nothing, as the caller knows; without it they are refused */
    int n_ignore_key;
    /* How positions are turned, in place of what the file says, said by a warning; NULL and 0: as it says. The context grows with it. */
    const char
        *rope_scaling; /* "none", "linear", "yarn": with rope_scale, how many times as long a context */
    float rope_scale, rope_freq_base;
    int yarn_orig_ctx; /* positions that the model was trained with; 0: the file's */
    float yarn_beta_fast, yarn_beta_slow, yarn_attn_factor;
    /* Of a folder that has adapters for tasks (jina-embeddings-v3): the one that its matrices have; NULL: none. */
    const char *task;
};

/* Opens, checks and binds a model file. NULL options: defaults.
 * errors: INFER_E_IO, INFER_E_INPUT (broken file, missing or mis-shaped tensor), INFER_E_UNSUPPORTED,
 * INFER_E_MEMORY */
enum infer_status infer_model_open(struct infer_model **out, const char *path,
                                   const struct infer_model_options *options);
void infer_model_close(struct infer_model *m);
/* The first of the layers of a file that draft tokens (nextn_predict_layers), as a model of its own with the vocabulary of `of`, which
 * outlives it. Each row of its engine takes, beside a token, what a model made of the token before (infer_step_hidden): the model `of`, or
 * this one of a token that it has drafted; its logits are of the token behind that one. errors: INFER_E_UNSUPPORTED (the file has none),
 * as infer_model_open */
enum infer_status infer_model_draft(struct infer_model **out, const struct infer_model *of);
/* A file that drafts for `of`, which outlives it: another model with the same vocabulary (infer_vocab_same), or a head for it (EAGLE-3), whose
 * engine takes what infer_tapped gives of of's (wants_hidden, n_tapped). A head's ids are those of `of`, in rows and results; its logits are of
 * its own vocabulary (n_vocab), which may be a part of that. errors: as infer_model_open; INFER_E_INPUT (of another model) */
enum infer_status infer_model_open_drafter(struct infer_model **out, const char *path,
                                           const struct infer_model_options *options,
                                           const struct infer_model *of);

struct infer_model_info {
    const char *arch, *format; /* "llama", "gguf v3" */
    const char *name;          /* general.name, not ended by 0: name[name_len] */
    size_t name_len;
    const char *type_name; /* the type that most weight bytes have */
    int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab, n_ctx_train;
    uint64_t n_param; /* elements of all weight matrices */
    uint64_t file_bytes;
    /* those that a token is multiplied with: all, but for experts that it does not choose */
    uint64_t n_param_token;
    uint64_t token_bytes;  /* bytes of weights that one decoded token reads */
    uint64_t prompt_bytes; /* that a long prompt reads: of all experts */
    uint64_t token_flops;  /* 2 x multiply-adds of the matrices for one token */
    int n_draft;           /* layers behind the others, which draft (infer_model_draft) */
    int n_deepstack;       /* numbers of rows of pictures: n_embd * (1 + n_deepstack) */
    bool both_ways;        /* rows of a picture see each other: infer_row.until */
    bool wants_hidden;     /* its steps are infer_step_hidden */
    int n_given;           /* numbers of a row of that; 0: not wanted */
    int n_tapped;          /* of a head: the last ones of these, which infer_tapped gives; 0: another model */
    bool own_ids;          /* of a head: its logits are of a part of its target's tokens */
    /* It makes vectors and scores of texts and chooses no tokens: a text is whole in one step (.batch), its rows see each other, and nothing
     * is kept of it. n_text: most tokens of one, as the file has it. */
    bool encoder;
    bool no_head; /* a model that writes, whose file has no head: it makes vectors alone */
    int n_text;
    int n_type; /* of tokens (infer_row.type) */
    int pooling; /* how rows become a vector, by GGUF's numbers: 0 not said, 1 mean, 2 first, 3 last, 4 first, then scores */
    int n_vector; /* numbers of a vector (infer_vector) */
    int n_label;  /* scores of a text in the place of a vector; 0: none */
    bool has_tokenizer;
    const char *chat_template; /* NULL when the file has none; chat_template[chat_template_len] */
    size_t chat_template_len;
};
void infer_model_info(const struct infer_model *m, struct infer_model_info *out);
/* A number of the file's metadata by its GGUF name ("general.sampling.temp"); false when there is none. */
bool infer_model_number(const struct infer_model *m, const char *key, double *out);

/* ---- text ---------------------------------------------------------------------------------------------- */

enum infer_tok_flags { INFER_TOK_SPECIAL = 1, INFER_TOK_ADD = 2 };
/* Text to ids, see tok_encode in tok.h: at most cap are written, *n_out is how many there are.
 * marks: NULL or marks[n], non-zero where no special token may be parsed. errors: INFER_E_UNSUPPORTED (no
 * tokenizer) */
enum infer_status infer_tokenize(const struct infer_model *m, const char *text, const uint8_t *marks,
                                 size_t n, unsigned flags, int32_t *ids, size_t cap, size_t *n_out);
/* One token's bytes, not ended by 0; a view valid as long as the model. special: show control tokens too.
 * first: the first token of a text. */
const char *infer_piece(const struct infer_model *m, int32_t id, bool special, bool first, size_t *n_out);
/* True when the token ends a turn. */
bool infer_is_stop(const struct infer_model *m, int32_t id);
/* INFER_OK when both have the same tokens under the same ids, so that one's ids can be fed to the other; unused tokens behind the last
 * used one do not count. errors: INFER_E_INPUT (names the first difference), INFER_E_UNSUPPORTED (no tokenizer) */
enum infer_status infer_vocab_same(const struct infer_model *a, const struct infer_model *b);
/* A text as an encoder takes it: ids[n], free with infer_text_free. */
struct infer_text {
    int32_t *ids;
    int n;
    int n_first; /* of two texts: those of the first, with what stands around it (infer_request_params.n_first); 0: there is one */
    int n_whole; /* what n would be if nothing were cut off */
    size_t n_a;  /* tokens of the first text alone */
};
/* One text a[n_a], or (b not NULL) two. most: so many tokens at most, of two texts the longer one is cut first; 0: nothing is cut off. */
struct infer_text_options {
    const char *a, *b;
    size_t n_a, n_b;
    int most;
};
/* No special token is parsed in a text. errors: INFER_E_UNSUPPORTED (no tokenizer), INFER_E_MEMORY */
enum infer_status infer_text_ids(const struct infer_model *m, const struct infer_text_options *o,
                                 struct infer_text *out);
void infer_text_free(struct infer_text *t);
int32_t infer_bos(const struct infer_model *m); /* -1: none */
int32_t infer_eos(const struct infer_model *m);

/* ---- adapters ------------------------------------------------------------------------------------------ */

/* Pairs of small matrices that are added to those of a model (LoRA), or vectors behind its layers (control vectors): a GGUF file, or a folder
 * of PEFT. Immutable; any number of engines of m may have it, which it outlives, and m outlives it. docs/adapters.md says what is read. NULL options: defaults.
 * errors: INFER_E_IO, INFER_E_INPUT (broken, of another model), INFER_E_UNSUPPORTED (asks for more than pairs), INFER_E_MEMORY */
struct infer_adapter;
struct infer_adapter_options {
    int first_layer, last_layer; /* of vectors those behind these layers alone, both included; 0, 0: all */
};
enum infer_status infer_adapter_open(struct infer_adapter **out, const struct infer_model *m,
                                     const char *path, const struct infer_adapter_options *options);
void infer_adapter_close(struct infer_adapter *a);
struct infer_adapter_info {
    const char *path;
    int n_part;     /* products and layers that it is added to */
    bool vectors;   /* it is added behind layers */
    uint64_t bytes; /* of its matrices in memory */
};
void infer_adapter_info(const struct infer_adapter *a, struct infer_adapter_info *out);

/* ---- engine -------------------------------------------------------------------------------------------- */

/* What an engine is asked for: a field for each row of infer_options.def, which says what it means (INT: int, FLAG and SWITCH: bool,
 * NUMBER: double, BYTES: uint64_t, TEXT: const char *), and those here. 0, false and NULL are defaults, but of gpu_layers and cpu_experts
 * -1 is: {.ctx = 4096, .gpu_layers = -1, .cpu_experts = -1}. The order of fields changes with versions: program and library are built with one
 * header. */
struct infer_engine_options {
#define INFER_OPTION(reader, type, field, ...) INFER_C_##type field;
#define INFER_FIELD(reader, type, field)       INFER_C_##type field;
#include "infer_options.def"
    /* x[k] is about to be multiplied with matrix of the n_matrix (experts, heads; else 1) that the tensor of this name in GGUF holds;
     * called in a step, before that product, for every row, and nothing may be allocated then; and while an engine is made once for
     * each tensor, x NULL. Not on a card. NULL: nobody looks, which costs nothing */
    void (*tap)(void *tap_user, const char *name, int n_matrix, int matrix, const float *x, int k);
    void *tap_user;
    /* called behind every operation, for every row that it has written, in a step, where nothing may be allocated; and while an engine is made
     * once for each operation, in the order of the lists, x NULL. Operations that have become one are the last of them (.no_fuse: none has);
     * on a card, those whose result is there as rows of float32 */
    void (*watch)(void *watch_user, const struct infer_watched *w);
    void *watch_user;
    void (*before_step)(
        void *before_user); /* called before each step is queued, and may take its time; NULL: nobody */
    void *before_user;
    struct infer_profile *profile; /* infer_profile.h: where the time goes; NULL: nobody asks */
    void (*progress)(void *user, const char *what, double done, double total); /* loading; may be NULL */
    void *user;
    /* adapter[n_adapter], which outlive the engine; ranks that are processes get theirs by infer_group_follow. adapter_scale[n_adapter]: of sequences that say
     * nothing else (struct infer_prefix), 0: they have it not; NULL: 1, each */
    const struct infer_adapter *const *adapter;
    const float *adapter_scale;
    int n_adapter;
    /* Places behind those for adapters that come later (infer_engine_adapter), each with adapter_rank in sum on any matrix; memory for what
     * rows become between their two products is taken at the start. At most 64; not on a card. */
    int adapter_room, adapter_rank;
    const struct infer_model *hidden_for; /* a head for this model: infer_tapped works; NULL: none */
    /* rank 0 of it, whose ranks compute the model; threads are those of this process; NULL: no other process does */
    struct infer_group *group;
};

/* Plans, places and prepares. NULL options: defaults. errors: INFER_E_MEMORY (does not fit: message and
 * infer_plan_text say what would), INFER_E_DEVICE, INFER_E_UNSUPPORTED, INFER_E_INPUT (options out of range)
 */
enum infer_status infer_engine_create(struct infer_engine **out, const struct infer_model *m,
                                      const struct infer_engine_options *options);
void infer_engine_free(struct infer_engine *e);
/* Puts an adapter, which outlives the engine or the next call, in a place of the room: n_adapter of the options and up; NULL: takes out what
 * stands there. Scales of all sequences count places. No step may be in flight, and no open sequence may have a scale there. Pages and snapshots
 * know an adapter by its content. errors: INFER_E_INPUT (these; a control vector; a rank without room; another model's) */
enum infer_status infer_engine_adapter(struct infer_engine *e, int place, const struct infer_adapter *a);

enum { INFER_KV_GROUPS = 8 };
struct infer_engine_info {
    const char *device; /* "cpu" */
    const char *device_name;
    const char *isa; /* "avx512-vnni" */
    bool hidden;     /* infer_hidden works */
    bool async;      /* steps run beside the host, which queues the next one before it waits for this one */
    int n_ctx, n_slot, n_batch, n_decode_rows, n_thread;
    int kv_tokens; /* positions that all sequences hold together, whole pages */
    int grid; /* of models with states: bits of prompt rows do not depend on cuts at multiples of it; 0: nor on any other */
    /* decode steps, counted from 0, in which a host copies weights and which are slow; equal: none */
    int repack_from, repack_to;
    int n_logits; /* rows of a step that may want logits */
    int n_adapter;
    int device_layers; /* the last layers, on the device; less than the model's when the host computes the others */
    int host_experts; /* the first layers, whose experts the host computes */
    const char *kv_type;
    /* What layers read of a position, by how many they look at: row_bytes of the last window positions, or of as many that are chosen; 0: of all. */
    struct {
        int window;
        uint64_t row_bytes;
    } kv[INFER_KV_GROUPS];
    int n_kv;
    /* what layers keep of a sequence beside; 0: none, else its rows in a step follow each other */
    uint64_t state_bytes;
    uint64_t weight_bytes, kv_bytes, activation_bytes, workspace_bytes, output_bytes,
        device_bytes;      /* as planned */
    uint64_t arena_bytes;  /* taken on a card in one piece; 0: memory of the host */
    uint64_t driver_bytes; /* of a card, gone beside the arena, measured now; 0: unknown */
};
void infer_engine_info(const struct infer_engine *e, struct infer_engine_info *out);
/* Bytes of keys and values that a token behind n positions reads, with states. */
double infer_kv_read_bytes(const struct infer_engine_info *info, double n);
/* The memory report as text, one line a class of memory; views into the engine. */
const char *infer_plan_text(const struct infer_engine *e);

/* A card as the plan needs it. Rates are ceilings, 0: unknown; read_gb_s in 1e9 bytes a second. */
struct infer_card {
    char name[32];
    int sm;   /* 120 */
    int n_sm; /* multiprocessors; 0: unknown */
    uint64_t memory_bytes;
    double read_gb_s, f16_tflops, int8_tops, tf32_tflops;
    const char *source; /* where the rates come from */
};

/* A way to share a model with experts between card and host where it does not fit, and what the bytes that a token reads come to, over
 * the read bandwidths: an upper bound, not measured. */
struct infer_share {
    bool considered, taken;
    int n;                             /* layers whose experts, or which as a whole, are on the host */
    uint64_t device_bytes, host_bytes; /* of weights that a token reads */
    uint64_t host_weights;             /* bytes of all weights on the host */
    double tok_s;
};

/* What the prediction of decoding follows from, where one device has all of the model. */
struct infer_reached {
    int kernels; /* of a step on a card; 0 on a host */
    /* of the read bandwidth that measured models of its kind came to, beside what their kernels take: so many of them, */
    double share;
    int n;
    const char *model, *on; /* one of them, and where; NULL: none */
};

/* A way to divide a model among cards, as predicted; nothing of it is measured. */
struct infer_way {
    const char *name; /* "tensor parallel", "pipeline", "expert parallel", "one card" */
    bool there, fits, taken;
    uint64_t bytes, limit_bytes; /* of the card that takes most */
    uint64_t
        token_bytes;    /* of weights, that a token reads on the slowest rank, or the stage that reads most */
    int exchanges;      /* between cards, of a token; */
    double exchange_us; /* all of them */
    double tok_s;       /* of one row */
};
/* A memory report without loading anything. */
struct infer_plan_report {
    struct infer_engine_info size; /* without device_name, isa, n_thread; device_bytes: taken on the device */
    uint64_t map_bytes;            /* the file, read in place by a host */
    uint64_t driver_bytes;         /* assumed share of a card's driver */
    uint64_t pinned_bytes;         /* of the host, for copies to and from a card */
    uint64_t limit_bytes;          /* that the device could give; UINT64_MAX: unknown */
    uint64_t host_bytes;           /* of the layers on the host */
    bool fits;                     /* infer_engine_create would accept */
    struct infer_share experts, layers;
    struct infer_reached reached;
    char nearest[8][64]; /* nearest[n_nearest]: options that fit where these do not */
    int n_nearest;
    struct infer_card card;  /* of as; name "" without, and of several */
    struct infer_way way[4]; /* of several cards; n_way 0: one, or this machine */
    int n_way;
    int n_rank;                /* of .ranks on this machine; 0: one has all; */
    uint64_t rank_token_bytes; /* and the weights that a token reads on the slowest of them */
    char *text;
};
/* as: NULL, or a card that is not here: "rtx-5090", "h200" and others of engine/plan/card.def, "GIB,sm_XX", or
 * several of them with commas between: then the report compares ways to divide the model. Free with infer_plan_free. errors: as
 * infer_engine_create, but what does not fit is a report */
enum infer_status infer_plan(const struct infer_model *m, const struct infer_engine_options *options,
                             const char *as, struct infer_plan_report *out);
void infer_plan_free(struct infer_plan_report *r);

/* What a layer keeps of positions in the cache: keys and values of n_head heads; one key by which positions are chosen ("index" of .kv_type);
 * one for each run of positions ("entries"). */
enum infer_kv_kind { INFER_KV_HEADS, INFER_KV_INDEX, INFER_KV_ENTRIES, INFER_KV_KINDS };
struct infer_kv_layer {
    int layer, window;        /* window: positions that it sees; 0: all */
    int n_head, dim_k, dim_v; /* dim_v 0: values are a part of the keys, or none */
    enum infer_kv_kind kind;
    int every; /* positions that have one key together, 1: each has its own */
    int n_seen; /* of an index: so many positions are chosen, where there are no more it changes nothing; else 0 */
};
/* What layers keep of their own, by layer and kind, at most `most` into out; returns how many there are. */
int infer_kv_layers(const struct infer_model *m, struct infer_kv_layer *out, int most);
/* Types of the cache that were measured: the mean KL divergence of the logits from those with f16, bytes at the depth where that was, and
 * the types as .kv_type takes them. */
struct infer_kv_choice {
    double kl;
    uint64_t bytes;
    const char *kv_type;
};
/* Writes choice[n] for `.kv_type = "auto"` to path, NULL: beside the model, "MODEL.kv.json"; kl: the bound of "auto" without a number;
 * text: a name for what was read, depth tokens of it, of which `counted` counted. The file knows the model by what it holds. errors:
 * INFER_E_IO, INFER_E_WRITE, INFER_E_MEMORY */
enum infer_status infer_kv_choices_save(const struct infer_model *m, const char *path, double kl,
                                        const char *text, int depth, int counted,
                                        const struct infer_kv_choice *choice, int n);

/* ---- sequences ----------------------------------------------------------------------------------------- */

/* Takes a free slot. errors: INFER_E_FULL */
enum infer_status infer_seq_open(struct infer_engine *e, int *seq);
/* With rows of it in flight, the slot is free once those steps have been waited for. */
void infer_seq_close(struct infer_engine *e, int seq);
/* Positions that sequences can still grow by, in whole pages: those that hold nothing, and prefixes that nobody uses. Pages are taken
 * when a row is queued. */
int infer_kv_free(const struct infer_engine *e);
/* Sets the length back to n (regenerate, rejected drafts); n <= length. With rows of it in flight it does so once those steps have been
 * waited for, and takes no rows until then. Where a layer has let go of what position n needs (behind an
 * attention window), the length becomes the greatest one below that all layers still have: infer_seq_length says it, and the tokens from
 * there on are computed again. A recurrent state goes back to a copy, and the rows from there to n are computed again as they once were,
 * here or with the next step (infer_replayed): what follows has the bits as if the sequence had never been longer. errors: those of
 * steps */
enum infer_status infer_seq_rewind(struct infer_engine *e, int seq, int n);
/* A number below -1 that stands for a row with such an embedding where ids are told: keyed in each process, by its content. */
int32_t infer_embed_id(const struct infer_engine *e, const float *embed);
/* Among whose prefixes one is looked for, and how it was computed. */
struct infer_prefix {
    /* users with different ones share nothing, and cannot tell what others asked by how long it takes */
    uint64_t salt;
    /* only what was computed as rows of a prompt: an answer that goes on from it has the bits as if all was computed anew */
    bool exact;
    bool alone; /* nothing of it goes into .kv_store, or comes from there */
    /* adapter[n_adapter]: the scales that the engine's adapters have in the sequence from now on (0: it has that one not): what was computed
     * with others is never found. Copied. NULL: those of the engine's options */
    const float *adapter;
};
/* Takes over the cached pages of the longest known prefix of ids[n] (whole pages, at most n - 1 tokens, as far as all
 * layers still have it) for a sequence of length 0; *n_shared: positions that need not be computed. What the sequence computes is known
 * under the same salt. among NULL: no salt, not exact. Also for n 0: the sequence has that salt and those adapters. */
enum infer_status infer_seq_prefix(struct infer_engine *e, int seq, const int32_t *ids, int n,
                                   const struct infer_prefix *among, int *n_shared);
/* Behind infer_seq_prefix, with the same: what an engine with .kv_store finds further on in files is taken over as well, bit for bit. Reads
 * for about so many seconds; *done false: again, before anything else is asked of the sequence; of several one
 * at a time goes on, the others wait for it. *n_shared as of infer_seq_prefix. No step
 * may be in flight. errors: INFER_E_INPUT, INFER_E_DEVICE */
enum infer_status infer_seq_kept(struct infer_engine *e, int seq, const int32_t *ids, int n,
                                 const struct infer_prefix *among, double seconds, int *n_shared, bool *done);
/* Hands pages and states that are not in .kv_store yet to who writes them, for about so many seconds, at least one; nothing while a step is
 * in flight. True: some are left. */
bool infer_keep(struct infer_engine *e, double seconds);
struct infer_kept_info {
    const char *folder;                                      /* NULL: there is none */
    uint64_t bytes, most;                                    /* in the folder, when it was last counted */
    uint64_t n_read, n_written, n_damaged, n_gone, n_failed; /* files */
};
void infer_kept_info(const struct infer_engine *e, struct infer_kept_info *out);
/* How many positions infer_seq_prefix would take over now; *n_free (may be NULL): those of them that infer_kv_free counts, since nobody
 * uses them. Takes nothing. */
int infer_prefix_probe(struct infer_engine *e, const int32_t *ids, int n, const struct infer_prefix *among,
                       int *n_free);
/* Rows that were computed again so far, since a state cannot be undone. */
uint64_t infer_replayed(const struct infer_engine *e);
/* A copy of a state is kept behind the prompt rows of a step. Those behind as many rows as fit into a step go first when room is needed,
 * unless the last row wants an output or they are at a multiple of INFER_STATE_STEP positions. Requests end a part of a prompt at the last
 * multiple of INFER_STATE_PAGE before its end, so that little is computed again for another answer or another prompt that begins alike. */
enum { INFER_STATE_STEP = 1024, INFER_STATE_PAGE = 64 };
/* Positions held. */
int infer_seq_length(const struct infer_engine *e, int seq);
/* The tokens at them: ids[infer_seq_length], valid until the next step of the sequence; so are those behind that a rewind has left. */
const int32_t *infer_seq_ids(const struct infer_engine *e, int seq);
/* Writes the sequence with its keys and values to a file (snapshot.h has the layout), whole or not at all, readable by
 * its owner alone; no step may be in flight. errors: INFER_E_INPUT (not open, or a step is in flight), INFER_E_IO (no
 * such folder, no permission), INFER_E_WRITE (no room), INFER_E_MEMORY, INFER_E_DEVICE */
enum infer_status infer_seq_save(struct infer_engine *e, int seq, const char *path);
/* Makes an open, empty sequence hold what was saved, bit for bit: it goes on as if it had never been away. Its pages are known under the
 * salt of the infer_seq_prefix before.
 * errors: INFER_E_UNSUPPORTED (made with another model, device kind, instruction set or KV type: both are named; the
 * tokens can be computed again), INFER_E_FULL (longer than the context), INFER_E_INPUT (broken), INFER_E_IO,
 * INFER_E_DEVICE; the sequence is empty then */
enum infer_status infer_seq_load(struct infer_engine *e, int seq, const char *path);
/* What the sequence holds is found by nobody any more, here and in .kv_store, and it is empty. No step may be in flight. errors: INFER_E_INPUT */
enum infer_status infer_seq_forget(struct infer_engine *e, int seq);

/* ---- steps --------------------------------------------------------------------------------------------- */

enum { INFER_LAST = -1 }; /* id: the token that this sequence just sampled */

enum infer_want {
    INFER_WANT_NONE = 0,
    INFER_WANT_TOKEN = 1,  /* the token that draw draws, without one the greedy token, lowest id on ties */
    INFER_WANT_LOGITS = 2, /* the row of logits: of n_logits rows of a step, of all with all_logits */
    INFER_WANT_TOP = 4,    /* the greatest of them, changed by draw, and their sums */
};

struct infer_row {
    int32_t id;  /* token id or INFER_LAST */
    int32_t pos; /* position; rows of one sequence in a step are consecutive and continue its length */
    int32_t seq;
    bool decode;  /* class: a generated, drafted or verified token; false: a prompt row. Never derived from
                     counts */
    uint8_t want; /* enum infer_want bits */
    const struct infer_draw
        *draw; /* NULL: greedy; kept by the caller until infer_submit has returned, as are these: */
    /* embed[n_embd * (1 + n_deepstack)] (struct infer_model_info): what the row has in place of the embedding of a token, as it is; NULL:
     * it has a token. In infer_seq_ids and in prefixes infer_embed_id stands in its place, or its id where that is below -1. A sequence
     * goes back behind it, or to where a state was kept */
    const float *embed;
    /* axis[3]: the row's positions in time, lines and columns, for models whose rotations have three; NULL: pos, all of them */
    const int32_t *axis;
    /* The last position that the row sees in models whose rows of a picture see each other, of a row of the same step; 0: its own. */
    int32_t until;
    int type; /* of an encoder's token: 1 in the second of two texts, where its model tells them apart */
};

struct infer_output {
    int n;                      /* rows that wanted something, in the order of the rows given */
    const int32_t *token;       /* token[n]: -1 where none was wanted */
    const float *const *logits; /* logits[n]: a row of n_vocab on the host, NULL where none was wanted */
    const struct infer_top *const *top; /* top[n], NULL where none was wanted */
};

/* Queues one step, whole or not at all; at most two may be in flight. errors: INFER_E_INPUT (row n is out of range: message names
 * it), INFER_E_FULL (context full: both numbers; no page for a sequence: it is named), after which every sequence is as it was;
 * INFER_E_DEVICE */
enum infer_status infer_submit(struct infer_engine *e, const struct infer_row *rows, int n);
/* Waits for the oldest step. out's arrays are valid until the second infer_submit after this call.
 * errors: INFER_E_CANCEL, INFER_E_DEVICE, INFER_E_NAN; after those two last ones the engine is poisoned. */
enum infer_status infer_wait(struct infer_engine *e, struct infer_output *out);
/* submit and wait */
enum infer_status infer_step(struct infer_engine *e, const struct infer_row *rows, int n,
                             struct infer_output *out);
/* The same for a model that wants it: hidden[n][n_given], what a model made of the token before each row's. Of infer_model_draft: n_embd
 * numbers, of infer_hidden of either engine. Of a head: n_embd numbers of infer_hidden of its own engine, or 0 and behind them n_tapped of
 * infer_tapped of its target's, or 0. Ids are tokens, rows of one class, and no other step is in flight. */
enum infer_status infer_step_hidden(struct infer_engine *e, const struct infer_row *rows, const float *hidden,
                                    int n, struct infer_output *out);
/* What the layers made of rows first .. first + n - 1 of a class, in the order given, of the step that was waited for last, behind the
 * last norm, of a head in front of it: *out is [n][n_embd], valid until the next call; no step may be in flight. Of rows that decode only where the step had no rows of prompts, which
 * go over them. errors: INFER_E_INPUT (an engine without .hidden, no such rows), INFER_E_DEVICE */
enum infer_status infer_hidden(struct infer_engine *e, bool decode, int first, int n, const float **out);
/* The same of what a head reads (.hidden_for): [n][n_tapped], the residual stream in front of some layers. */
enum infer_status infer_tapped(struct infer_engine *e, bool decode, int first, int n, const float **out);
/* What a model makes of the pooled rows of a text, pooled[n_embd]: out[n_vector], or out[n_label] as they are. errors: INFER_E_MEMORY */
enum infer_status infer_vector(const struct infer_model *m, const double *pooled, float *out);
/* Stops the step that is running, or where none is the next one, so that a signal just before a step is not lost; async-signal-safe. The
 * step's infer_wait returns INFER_E_CANCEL and the sequences keep the lengths they had before it. */
void infer_cancel(struct infer_engine *e);

#ifdef __cplusplus
}
#endif
