/* Towers against transformers: tiny random ones, from folders and from the mmproj files that these become, on ref and cpu. */
#include "tests/lib/test.h"
#include "tests/lib/cuda_there.h"
#include "tests/lib/tolerance.h"
#include "files/gguf_write.h"
#include "infer.h"
#include "tools/file/quantize.h"
#include "vision/tower_impl.h"

#include <math.h>
#include <unistd.h>

enum { MAX_PICTURES = 8 };

struct golden {
    int32_t n, width;
    float sd;
    struct {
        int32_t width, height, to_width, to_height, n_token;
        float *rows;
    } picture[MAX_PICTURES];
};

static void golden_read(struct golden *g, const char *name) {
    char file[128], path[512];
    snprintf(file, sizeof file, "golden/tower/%s/rows.bin", name);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    read_words(f, &g->n, 1);
    read_words(f, &g->width, 1);
    read_words(f, &g->sd, 1);
    assert_in_range(g->n, 1, MAX_PICTURES);
    for (int i = 0; i < g->n; i++) {
        read_words(f, &g->picture[i], 5);
        const size_t all = (size_t)g->picture[i].n_token * (size_t)g->width;
        g->picture[i].rows = malloc(all * 4);
        read_words(f, g->picture[i].rows, all);
    }
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}
static void golden_free(struct golden *g) {
    for (int i = 0; i < g->n; i++) free(g->picture[i].rows);
}

/* The pattern of goldens/vision.py. */
static struct image picture(int width, int height, int n) {
    struct image p = {width, height, mem_alloc((size_t)width * (size_t)height * 3)};
    assert_non_null(p.rgb);
    for (int y = 0, i = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                p.rgb[i++] = (unsigned char)(x * (11 + n) + y * 17 + c * 71 + x * y * (c + 1) % 97 + 40 * n);
    return p;
}

static const char *const names[] = {
    "gemma4uv",  "gemma4v",    "gemma4v-bounds", "qwen3vl",        "qwen3_5",       "pixtral",  "gemma3",
    "idefics3",  "qwen2_5_vl", "qwen2_vl",       "internvl",       "internvl-rms",  "lfm2",     "glm4v",
    "glm4v_moe", "llama4",     "minicpmv4_6",    "minicpmv4_6-4x", "internvl_chat", "minicpmv", "glm_ocr"};
enum { N_NAMES = sizeof names / sizeof *names };

static struct tower *open_tower(const char *name, const struct tower_options *o) {
    struct tower *t;
    char file[128], path[512];
    snprintf(file, sizeof file, "golden/tower/%s", name);
    assert_ok(tower_open(&t, test_path(path, sizeof path, file), o));
    return t;
}

/* The largest difference of a picture's rows, in standard deviations of all. */
static double encode(struct tower *t, const struct golden *g, int i, float *rows) {
    struct image p = picture(g->picture[i].width, g->picture[i].height, i);
    struct tower_fit f;
    double most = 0;
    assert_ok(tower_fit(t, p.width, p.height, &f));
    assert_int_equal(f.to_width, g->picture[i].to_width);
    assert_int_equal(f.to_height, g->picture[i].to_height);
    assert_int_equal(f.n_token, g->picture[i].n_token);
    assert_ok(tower_encode(t, &p, &f, rows));
    for (int k = 0; k < f.n_token * g->width; k++) {
        const double d = fabs((double)rows[k] - (double)g->picture[i].rows[k]);
        if (!(d <= most)) most = d;
    }
    image_free(&p);
    return most / (double)g->sd;
}

/* Of products in BF16; AMX has larger errors in tiny towers. */
static double tolerance_of(const struct tower *t) {
    struct backend_info how;
    t->backend->type->info(t->backend, &how);
    return how.isa && strstr(how.isa, "amx") ? TOL_LOGITS_AMX : TOL_LOGITS_BF16;
}

static void check(const char *name, const char *what, const struct tower_options *o, double tolerance) {
    struct golden g;
    struct tower_info info;
    golden_read(&g, name);
    struct tower *t = open_tower(name, o);
    if (tolerance == TOL_LOGITS_BF16) tolerance = tolerance_of(t);
    tower_info(t, &info);
    assert_int_equal(info.n_embd * (1 + info.n_deepstack), g.width);
    for (int i = 0; i < g.n; i++) {
        float *rows = malloc((size_t)g.picture[i].n_token * (size_t)g.width * 4);
        const double d = encode(t, &g, i, rows);
        if (!(d <= tolerance))
            fail_msg("%s on %s: picture %d of %d x %d differs by %.3g of sd, tolerance %g", name, what, i,
                     g.picture[i].width, g.picture[i].height, d, tolerance);
        free(rows);
    }
    tower_close(t);
    golden_free(&g);
}

static const struct backend_type *cuda_backend(void) {
#ifdef INFER_CUDA
    return &backend_cuda;
#else
    return NULL;
#endif
}

static void rows_of_towers(void **state) {
    (void)state;
    bool must;
    const bool card = cuda_there(&must);
    assert_true(card || !must);
    for (int i = 0; i < N_NAMES; i++) {
        check(names[i], "ref", &(struct tower_options){.backend = &backend_ref}, TOL_LOGITS_REF);
        check(names[i], "cpu, float32", &(struct tower_options){.strict_fp32 = true, .cpu.threads = 2},
              TOL_LOGITS_REF);
        check(names[i], "cpu", &(struct tower_options){.cpu.threads = 2}, TOL_LOGITS_BF16);
        if (card)
            check(names[i], "cuda", &(struct tower_options){.backend = cuda_backend()}, TOL_LOGITS_BF16);
    }
}

/* A picture in pieces of no time, an operation or a unit each, has the rows that it has at once; one that is left in the middle leaves
 * nothing to the next. */
static void pieces_of_a_picture(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        struct golden g;
        golden_read(&g, names[i]);
        struct tower *t = open_tower(names[i], &(struct tower_options){.cpu.threads = 2});
        const size_t n = (size_t)g.picture[0].n_token * (size_t)g.width;
        float *whole = calloc(n, 4), *cut = calloc(n, 4);
        struct image p = picture(g.picture[0].width, g.picture[0].height, 0);
        struct tower_fit f;
        assert_ok(tower_fit(t, p.width, p.height, &f));
        assert_ok(tower_encode(t, &p, &f, whole));
        for (int most = 3; most; most = most == 3 ? 1 << 20 : 0) {
            bool done = false;
            int k = 0;
            assert_ok(tower_begin(t, &p, &f));
            for (; !done && k < most; k++) assert_ok(tower_step(t, 0, cut, &done));
            assert_true(most == 3 ? !done : k > 4);
        }
        assert_memory_equal(whole, cut, n * 4);
        free(whole);
        free(cut);
        image_free(&p);
        tower_close(t);
        golden_free(&g);
    }
}

/* What llama.cpp asks for of a file, whether anything is made of it here or not. source: its clip */
static void others_open(const char *path, bool breaks, bool asks) {
    static const char *const needed[] = {"embedding_length",    "attention.head_count",
                                         "feed_forward_length", "block_count",
                                         "projection_dim",      "attention.layer_norm_epsilon",
                                         "image_size",          "patch_size",
                                         "image_mean",          "image_std"};
    enum { N = sizeof needed / sizeof *needed };
    struct tensorfile *f;
    bool there[N] = {false}, row = false, places = false;
    assert_ok(tensorfile_open(&f, path, &(struct tensorfile_options){.tower = true}));
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct meta *m = &f->meta[i];
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)m->key.len, m->key.data);
        for (int k = 0; k < N; k++)
            there[k] |= strncmp(key, "clip.vision.", 12) == 0 && strcmp(key + 12, needed[k]) == 0;
        if (strcmp(key, "clip.vision.wa_layer_indexes") == 0) assert_int_equal(m->elem, META_I32);
        if (strcmp(key, "clip.minicpmv_version") == 0) assert_int_equal(m->type, META_I32);
    }
    for (int k = 0; k < N; k++)
        if (!there[k]) fail_msg("%s: llama.cpp would miss 'clip.vision.%s'", path, needed[k]);
    for (size_t i = 0; i < f->n_tensor; i++)
        row |= strcmp(f->tensor[i].name, "v.token_embd.img_break") == 0 && f->tensor[i].n_dim == 1 &&
               f->tensor[i].shape[3] == 32;
    assert_int_equal(row, breaks);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        if (strcmp(t->name, "resampler.pos_embed_k") != 0) continue;
        const int d = (int)t->shape[3];
        const float *at = (const float *)t->data + (size_t)(70 * 3 + 2) * (size_t)d; /* line 3, column 2 */
        places = t->type == QUANT_F32 && t->shape[2] == 4900;
        for (int k = 0; k < d; k++) {
            const int half = d / 2, i4 = k % half % (half / 2);
            const double turn = (k < half ? 2 : 3) * pow(10000, -2.0 * i4 / half);
            assert_true(fabs((double)at[k] - (k % half < half / 2 ? sin(turn) : cos(turn))) < 1e-6);
        }
    }
    assert_int_equal(places, asks);
    tensorfile_close(f);
}

/* The mmproj file that convert makes of a folder is the same tower; its halves of rows of q and k stand as GGUF has them. */
static void files_of_folders(void **state) {
    (void)state;
    char from[512], file[128], to[] = "/tmp/infer-mmproj-XXXXXX";
    const int fd = mkstemp(to);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < N_NAMES; i++) {
        struct quantize_report report;
        struct golden g;
        struct tower *t;
        snprintf(file, sizeof file, "golden/tower/%s", names[i]);
        assert_ok(quantize_file(&(struct quantize_options){.in = test_path(from, sizeof from, file),
                                                           .out = to,
                                                           .type = "f32",
                                                           .tower = true,
                                                           .force = true},
                                &report));
        others_open(to, strcmp(names[i], "pixtral") == 0, strcmp(names[i], "minicpmv") == 0);
        golden_read(&g, names[i]);
        assert_ok(tower_open(&t, to, &(struct tower_options){.backend = &backend_ref}));
        struct tower_info info;
        tower_info(t, &info);
        assert_int_equal(info.n_embd * (1 + info.n_deepstack), g.width);
        for (int k = 0; k < g.n; k++) {
            float *rows = malloc((size_t)g.picture[k].n_token * (size_t)g.width * 4);
            const double d = encode(t, &g, k, rows);
            if (!(d <= TOL_LOGITS_REF))
                fail_msg("%s as mmproj: picture %d differs by %.3g of sd", names[i], k, d);
            free(rows);
        }
        tower_close(t);
        golden_free(&g);
    }
    unlink(to);
}

/* Towers of fewer bits, whose products others than those of float32 make: rows of every family beside those of ref on the same file. */
static void beside_ref(const char *name, const char *what, const char *file, const struct tower_options *o) {
    const struct tower_options by_ref = {.backend = &backend_ref};
    struct tower *t, *plain;
    struct golden g;
    golden_read(&g, name);
    assert_ok(tower_open(&plain, file, &by_ref));
    assert_ok(tower_open(&t, file, o));
    for (int k = 0; k < g.n; k++) {
        const int n = g.picture[k].n_token * g.width;
        float *rows = malloc((size_t)n * sizeof *rows);
        (void)encode(plain, &g, k, g.picture[k].rows);
        const double d = encode(t, &g, k, rows);
        if (!(d <= tolerance_of(t)))
            fail_msg("%s on %s: picture %d differs from ref by %.3g of sd", name, what, k, d);
        free(rows);
    }
    tower_close(t);
    tower_close(plain);
    golden_free(&g);
}
static void quantized(const char *in, const char *out, const char *type) {
    struct quantize_report report;
    assert_ok(quantize_file(
        &(struct quantize_options){.in = in, .out = out, .type = type, .tower = true, .force = true},
        &report));
}
static void rows_of_towers_in_16_bits_or_fewer(void **state) {
    char folder[128], from[512], to[] = "/tmp/infer-mmproj-XXXXXX", again[64];
    bool must;
    const bool card = cuda_there(&must);
    const int fd = mkstemp(to);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    snprintf(again, sizeof again, "%s-2", to);
    for (int i = 0; i < N_NAMES; i++) {
        static const char *const types[] = {"f16", "bf16", "q8_0"}; /* the last one of the file before */
        snprintf(folder, sizeof folder, "golden/tower/%s", names[i]);
        for (int k = 0; k < 3; k++) {
            const char *file = k < 2 ? to : again;
            quantized(k < 2 ? test_path(from, sizeof from, folder) : to, file, types[k]);
            beside_ref(names[i], "cpu", file, &(struct tower_options){.cpu.threads = 2});
            if (card) beside_ref(names[i], "cuda", file, &(struct tower_options){.backend = cuda_backend()});
        }
    }
    unlink(to), unlink(again);
}

/* The file as the first converters wrote it: the names of up and down the other way round, no width between them. */
static void write_swapped(const char *from, const char *to) {
    struct tensorfile *f;
    struct gguf_writer *w;
    assert_ok(tensorfile_open(&f, from, &(struct tensorfile_options){.tower = true}));
    assert_ok(gguf_writer_open(&w, to));
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct str key = f->meta[i].key;
        if (!memmem(key.data, key.len, "feed_forward", 12)) gguf_writer_meta(w, &f->meta[i]);
    }
    gguf_writer_u32(w, "clip.vision.feed_forward_length", 0);
    gguf_writer_bool(w, "clip.has_text_encoder", false);
    gguf_writer_bool(w, "clip.has_qwen2vl_merger", true);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *x = &f->tensor[i];
        const char *up = strstr(x->name, "ffn_up."), *down = strstr(x->name, "ffn_down.");
        char name[128];
        snprintf(name, sizeof name, "%s", x->name);
        if (up) snprintf(name + (up - x->name), 32, "ffn_down.%s", up + 7);
        if (down) snprintf(name + (down - x->name), 32, "ffn_up.%s", down + 9);
        gguf_writer_tensor(w, name, x->type, x->n_dim, x->shape);
    }
    assert_ok(gguf_writer_begin(w));
    for (size_t i = 0; i < f->n_tensor; i++)
        assert_ok(gguf_writer_data(w, f->tensor[i].data, f->tensor[i].bytes));
    assert_ok(gguf_writer_close(w));
    tensorfile_close(f);
}

/* Old files are the same tower. */
static void old_names_of_up_and_down(void **state) {
    (void)state;
    char from[512], plain[] = "/tmp/infer-mmproj-XXXXXX", swapped[64];
    struct quantize_report report;
    struct golden g;
    struct tower *t;
    const int fd = mkstemp(plain);
    assert_true(fd >= 0);
    close(fd);
    snprintf(swapped, sizeof swapped, "%s-2", plain);
    assert_ok(
        quantize_file(&(struct quantize_options){.in = test_path(from, sizeof from, "golden/tower/qwen2_vl"),
                                                 .out = plain,
                                                 .type = "f32",
                                                 .tower = true,
                                                 .force = true},
                      &report));
    write_swapped(plain, swapped);
    golden_read(&g, "qwen2_vl");
    assert_ok(tower_open(&t, swapped, &(struct tower_options){.backend = &backend_ref}));
    float *rows = malloc((size_t)g.picture[0].n_token * (size_t)g.width * 4);
    assert_true(encode(t, &g, 0, rows) <= TOL_LOGITS_REF);
    free(rows);
    tower_close(t);
    golden_free(&g);
    unlink(plain), unlink(swapped);
}

/* ---- a talk with two pictures ---- */

enum { MAX_IDS = 160 };
struct talk {
    int32_t n, n_vocab, n_keep, which[2], at[2], given[2];
    float sd;
    int32_t ids[MAX_IDS], keep[MAX_IDS];
    float *logits;
};

static void talk_read(struct talk *t, const char *name) {
    char file[128], path[512];
    snprintf(file, sizeof file, "golden/tower/%s/talk.bin", name);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    read_words(f, t, 9);
    read_words(f, &t->sd, 1);
    assert_in_range(t->n, 1, MAX_IDS);
    read_words(f, t->ids, (size_t)t->n);
    read_words(f, t->keep, (size_t)t->n_keep);
    t->logits = malloc((size_t)t->n_keep * (size_t)t->n_vocab * 4);
    read_words(f, t->logits, (size_t)t->n_keep * (size_t)t->n_vocab);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

/* The rows of a talk: ids, and rows and positions of the pictures. */
struct prompt {
    struct infer_row rows[MAX_IDS];
    int32_t axis[MAX_IDS][3];
    float *picture[2];
};

static void prompt_make(struct prompt *p, const struct talk *talk, const struct golden *g, struct tower *t,
                        bool both_ways) {
    struct tower_info info;
    struct tower_fit fit;
    int next = 0, k = 0;
    tower_info(t, &info);
    memset(p, 0, sizeof *p);
    for (int i = 0; i < talk->n; i++) {
        if (k < 2 && i == talk->at[k]) {
            const int which = talk->which[k], n = talk->given[k];
            p->picture[k] = malloc((size_t)n * (size_t)g->width * 4);
            (void)encode(t, g, which, p->picture[k]);
            assert_ok(tower_fit(t, g->picture[which].width, g->picture[which].height, &fit));
            for (int part = 0, r = i; part < fit.n_part; part++) {
                struct tower_part tp;
                tower_part(t, &fit, part, &tp);
                tower_positions(t, &fit, part, next, p->axis + r, &next);
                r += tp.n_row;
            }
            for (int r = 0; r < n; r++) {
                struct infer_row *row = &p->rows[i + r];
                row->embed = p->picture[k] + (size_t)r * (size_t)g->width;
                row->until = both_ways ? i + n - 1 : 0;
            }
            i += n - 1, k++;
            continue;
        }
        p->rows[i].id = talk->ids[i];
        for (int a = 0; a < 3; a++) p->axis[i][a] = next;
        next++;
    }
    for (int i = 0; i < talk->n; i++)
        p->rows[i].pos = i, p->rows[i].axis = info.three_positions ? p->axis[i] : NULL;
}

static struct infer_engine *engine_of(struct infer_model *m, const char *device) {
    struct infer_engine *e;
    assert_ok(infer_engine_create(&e, m,
                                  &(struct infer_engine_options){.device = device,
                                                                 .threads = 2,
                                                                 .ctx = 2 * MAX_IDS,
                                                                 .slots = 2,
                                                                 .batch = MAX_IDS,
                                                                 .inputs = true,
                                                                 .kv_type = "f32",
                                                                 .strict_fp32 = true,
                                                                 .all_logits = true,
                                                                 .gpu_layers = -1,
                                                                 .cpu_experts = -1}));
    return e;
}

/* Rows from .. of the sequence in steps of at most `step`; the largest difference of logits that are known, in sd. */
static double run_rows(struct infer_engine *e, const struct talk *t, struct prompt *p, int seq, int from,
                       int step) {
    double most = 0;
    for (int n; from < t->n; from += n) {
        struct infer_output out;
        n = t->n - from < step ? t->n - from : step;
        for (int i = from; i < from + n; i++) p->rows[i].seq = seq, p->rows[i].want = INFER_WANT_LOGITS;
        assert_ok(infer_step(e, p->rows + from, n, &out));
        for (int k = 0; k < t->n_keep; k++) {
            if (t->keep[k] < from || t->keep[k] >= from + n) continue;
            for (int i = 0; i < t->n_vocab; i++) {
                const double d =
                    fabs((double)out.logits[t->keep[k] - from][i] - (double)t->logits[k * t->n_vocab + i]);
                if (!(d <= most)) most = d;
            }
        }
    }
    return most / (double)t->sd;
}

static void check_talk(const char *name, const char *device, double tolerance) {
    static struct prompt p;
    struct golden g;
    struct talk talk;
    struct infer_model *m;
    struct infer_model_info info;
    char file[128], path[512];
    golden_read(&g, name);
    talk_read(&talk, name);
    snprintf(file, sizeof file, "golden/tower/%s", name);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, file), NULL));
    infer_model_info(m, &info);
    struct tower *t = open_tower(name, &(struct tower_options){.backend = &backend_ref,
                                                               .n_embd = info.n_embd,
                                                               .n_deepstack = info.n_deepstack});
    struct infer_engine *e = engine_of(m, device);
    prompt_make(&p, &talk, &g, t, info.both_ways);
    int seq, last = talk.at[1] + talk.given[1];
    assert_ok(infer_seq_open(e, &seq));
    double d = run_rows(e, &talk, &p, seq, 0, MAX_IDS);
    if (!(d <= tolerance)) fail_msg("%s on %s: logits differ by %.3g of sd", name, device, d);
    /* the text behind the pictures once more, behind what is kept of them */
    assert_ok(infer_seq_rewind(e, seq, last + 3));
    d = run_rows(e, &talk, &p, seq, infer_seq_length(e, seq), MAX_IDS);
    if (!(d <= tolerance)) fail_msg("%s on %s: behind a rewind logits differ by %.3g of sd", name, device, d);
    p.rows[0].embed = p.picture[0],
    p.rows[0].id = -7; /* a name of the caller's stands for a row, else what is in it */
    infer_seq_close(e, seq);
    assert_ok(infer_seq_open(e, &seq));
    struct infer_output named;
    assert_ok(infer_step(e, p.rows, 1, &named));
    assert_int_equal(infer_seq_ids(e, seq)[0], -7);
    p.rows[0].embed = NULL, p.rows[0].id = talk.ids[0];
    infer_seq_close(e, seq);
    if (!info.both_ways) { /* the rows of a picture in several steps */
        assert_ok(infer_seq_open(e, &seq));
        d = run_rows(e, &talk, &p, seq, 0, 5);
        if (!(d <= tolerance))
            fail_msg("%s on %s: in steps of 5 logits differ by %.3g of sd", name, device, d);
    } else {
        struct infer_output out;
        assert_ok(infer_seq_open(e, &seq));
        for (int i = 0; i < talk.n; i++) p.rows[i].seq = seq;
        assert_int_equal(infer_step(e, p.rows, talk.at[0] + 2, &out),
                         INFER_E_INPUT); /* they see what is not there */
    }
    infer_engine_free(e);
    tower_close(t);
    infer_model_close(m);
    free(p.picture[0]), free(p.picture[1]);
    free(talk.logits);
    golden_free(&g);
}

static void logits_behind_pictures(void **state) {
    (void)state;
    bool must;
    const bool card = cuda_there(&must);
    for (int i = 0; i < N_NAMES; i++) {
        check_talk(names[i], "ref", TOL_LOGITS_REF);
        check_talk(names[i], "cpu", TOL_LOGITS_REF);
        if (card) check_talk(names[i], "cuda", TOL_LOGITS_BF16);
    }
}

static void refused(const char *file, const struct tower_options *o, enum infer_status want,
                    const char *word) {
    char path[512];
    struct tower *t = NULL;
    assert_int_equal(tower_open(&t, test_path(path, sizeof path, file), o), want);
    assert_null(t);
    if (!strstr(err_message(), word)) fail_msg("'%s' does not say '%s'", err_message(), word);
}

static void what_is_refused(void **state) {
    (void)state;
    refused("golden/tower/gemma3", &(struct tower_options){.n_embd = 25}, INFER_E_INPUT,
            "wrong mmproj: its rows have 24");
    refused("golden/tower/qwen3vl", &(struct tower_options){.n_embd = 32}, INFER_E_INPUT,
            "wrong mmproj: its rows have 2 parts");
    refused("golden/tower/gemma3", &(struct tower_options){.max_tokens = 8}, INFER_E_INPUT, "have 9 rows");
    refused("golden/hf/llama", NULL, INFER_E_UNSUPPORTED, "no 'vision_config'");
    refused("golden/chat/chat-llama.gguf", NULL, INFER_E_INPUT, "'llama'");
    refused("golden/tower/none", NULL, INFER_E_IO, "none");
}

/* The folder with another number in config.json. */
static void refused_number(const char *name, const char *was, const char *is, enum infer_status want,
                           const char *word) {
    char from[512], file[128], to[] = "/tmp/infer-tower-XXXXXX", line[2048];
    struct tower *t = NULL;
    assert_non_null(mkdtemp(to));
    snprintf(file, sizeof file, "golden/tower/%s", name);
    test_path(from, sizeof from, file);
    snprintf(line, sizeof line, "cp %s/* %s && sed -i 's/%s/%s/' %s/config.json", from, to, was, is, to);
    assert_int_equal(system(line), 0);
    assert_int_equal(tower_open(&t, to, NULL), want);
    if (!strstr(err_message(), word))
        fail_msg("%s of %s: '%s' does not say '%s'", is, name, err_message(), word);
    snprintf(line, sizeof line, "rm -r %s", to);
    assert_int_equal(system(line), 0);
}

static void numbers_that_do_not_fit(void **state) {
    (void)state;
    refused_number("gemma3", "\"image_size\": 24", "\"image_size\": 48", INFER_E_INPUT, "has 36 rows");
    refused_number("idefics3", "\"image_size\": 24", "\"image_size\": 32", INFER_E_INPUT, "has 36 rows");
    refused_number("gemma3", "\"mm_tokens_per_image\": 9", "\"mm_tokens_per_image\": -9", INFER_E_INPUT,
                   "image_size");
    refused_number("gemma4v", "\"pooling_kernel_size\": 3", "\"pooling_kernel_size\": 900", INFER_E_INPUT,
                   "pooling");
    refused_number("qwen3vl", "\"hidden_size\": 24", "\"hidden_size\": 28", INFER_E_INPUT, "does not fit");
    refused_number("qwen3vl", "\"depth\": 3", "\"depth\": 2", INFER_E_UNSUPPORTED, "v.blk.2.");
    refused_number("qwen3vl", "\"depth\": 3", "\"depht\": 3", INFER_E_UNSUPPORTED, "depht");
    refused_number("glm4v", "\"model_type\": \"glm4v\"", "\"model_type\": \"glm9v\"", INFER_E_UNSUPPORTED,
                   "'glm9v'");
    refused_number("minicpmv4_6", "\"insert_layer_id\": 1", "\"insert_layer_id\": 3", INFER_E_INPUT,
                   "wa_layer_indexes");
    refused_number("minicpmv4_6", "\"merger_times\": 1", "\"merger_times\": 2", INFER_E_INPUT,
                   "merger_times");
    refused_number("minicpmv", "\"version\": 2.6", "\"version\": 2.5", INFER_E_UNSUPPORTED, "version' is 2");
    refused_number("minicpmv", "\"query_num\": 6", "\"query_num\": 7", INFER_E_INPUT, "resampler.query");
    refused_number("minicpmv", "\"drop_vision_last_layer\": false", "\"drop_vision_last_layer\": true",
                   INFER_E_UNSUPPORTED, "drop_vision_last_layer");
    refused_number("internvl", "\"vision_feature_layer\": -1", "\"vision_feature_layer\": -2",
                   INFER_E_UNSUPPORTED, "vision_feature_layer");
    refused_number("qwen2_5_vl", "\"window_size\": 24", "\"window_size\": 7", INFER_E_INPUT,
                   "windows of 7 pixels");
    refused_number("pixtral", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"tanh\"", INFER_E_INPUT,
                   "hidden_act");
}

/* Whether there is a tower, without reading weights. */
static void probes(void **state) {
    (void)state;
    char path[512], projector[64];
    bool there;
    assert_ok(tower_probe(test_path(path, sizeof path, "golden/tower/qwen3vl"), projector, &there));
    assert_true(there);
    assert_string_equal(projector, "qwen3vl_merger");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_towers),
                                       cmocka_unit_test(rows_of_towers_in_16_bits_or_fewer),
                                       cmocka_unit_test(pieces_of_a_picture),
                                       cmocka_unit_test(files_of_folders),
                                       cmocka_unit_test(old_names_of_up_and_down),
                                       cmocka_unit_test(logits_behind_pictures),
                                       cmocka_unit_test(what_is_refused),
                                       cmocka_unit_test(numbers_that_do_not_fit),
                                       cmocka_unit_test(probes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
