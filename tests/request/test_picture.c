/* Pictures in prompts: where templates put them and where they do not, what is computed once, what is refused. The tower is made up: the
 * functions of tower.h stand here. */
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "base/mem.h"
#include "engine/request/picture.h"
#include "infer_request.h"
#include "vision/tower.h"

/* ---- a tower of one row for each 8 x 8 pixels, which is their mean brightness ---- */

enum { SIDE = 8 };
static int n_open, n_encoded, n_deepstack, tower_embd;
static const bool in_a_grid; /* models here take rows without places alone */
static enum infer_status fails;

struct tower {
    int n_embd;
};
enum infer_status tower_open(struct tower **out, const char *path, const struct tower_options *options) {
    (void)path;
    TRY(mem_new(out, sizeof **out, "a tower"));
    (*out)->n_embd = tower_embd = options->n_embd;
    n_open++;
    return INFER_OK;
}
void tower_close(struct tower *t) {
    mem_free(t);
    n_open--;
}
void tower_info(const struct tower *t, struct tower_info *out) {
    *out = (struct tower_info){.projector = "made_up",
                               .n_embd = t->n_embd,
                               .n_deepstack = n_deepstack,
                               .three_positions = in_a_grid,
                               .placeholder = "<|endoftext|>",
                               .before = "<|im_start|>",
                               .after = "<|im_end|>"};
}
enum infer_status tower_probe(const char *path, char projector[64], bool *there) {
    (void)path, (void)projector;
    *there = false;
    return INFER_OK;
}
enum infer_status tower_fit(const struct tower *t, int width, int height, struct tower_fit *out) {
    (void)t;
    const int x = (width + SIDE - 1) / SIDE, y = (height + SIDE - 1) / SIDE;
    *out = (struct tower_fit){.width = width,
                              .height = height,
                              .to_width = x * SIDE,
                              .to_height = y * SIDE,
                              .grid_x = x,
                              .grid_y = y,
                              .n_piece = 1,
                              .n_token = x * y,
                              .n_part = in_a_grid ? 1 : y + 1};
    return INFER_OK;
}
/* a line is a part with a token in front, and a token stands behind the last; or all rows are one part */
void tower_part(const struct tower *t, const struct tower_fit *f, int part, struct tower_part *out) {
    (void)t;
    if (in_a_grid)
        *out = (struct tower_part){.first_row = 0, .n_row = f->n_token};
    else
        *out = (struct tower_part){.first_row = part * f->grid_x, .n_row = part < f->grid_y ? f->grid_x : 0};
    snprintf(out->text, sizeof out->text, "%s", in_a_grid ? "" : part ? "\n" : "<|im_end|>");
}
void tower_positions(const struct tower *t, const struct tower_fit *f, int part, int pos, int32_t (*axis)[3],
                     int *next) {
    (void)t, (void)part;
    for (int i = 0; i < f->n_token; i++)
        axis[i][0] = pos, axis[i][1] = pos + i / f->grid_x, axis[i][2] = pos + i % f->grid_x;
    *next = pos + (f->grid_x > f->grid_y ? f->grid_x : f->grid_y);
}
/* A picture takes three steps. */
static int n_step;
static struct tower_fit seen_fit;
static unsigned char seen_rgb[3];
enum infer_status tower_begin(struct tower *t, const struct image *image, const struct tower_fit *f) {
    (void)t;
    n_encoded++;
    n_step = 0;
    seen_fit = *f;
    memcpy(seen_rgb, image->rgb, 3);
    return INFER_OK;
}
enum infer_status tower_step(struct tower *t, double seconds, float *rows, bool *done) {
    const int width = t->n_embd * (1 + n_deepstack);
    (void)seconds;
    if (fails) return err_set(fails, "a tower that fails");
    if (!(*done = ++n_step == 3)) return INFER_OK;
    for (int i = 0; i < seen_fit.n_token * width; i++) rows[i] = (float)seen_rgb[i % 3] / 255 + (float)i;
    return INFER_OK;
}
void tower_cancel(struct tower *t) { (void)t; }

/* ---- ---- */

static struct infer_model *model;
static struct infer_vision *vision;

static int load(void **state) {
    (void)state;
    char path[512];
    if (infer_model_open(&model, test_path(path, sizeof path, "golden/chat/chat-qwen2.gguf"), NULL))
        return -1;
    return infer_vision_open(&vision, model, "made up", NULL) ? -1 : 0;
}
static int unload(void **state) {
    (void)state;
    infer_vision_close(vision);
    infer_model_close(model);
    return n_open;
}

static struct infer_picture *picture_of(const char *name, unsigned flags) {
    char path[512], file[64];
    struct infer_picture *p;
    size_t n;
    snprintf(file, sizeof file, "fuzz/corpus/image/%s", name);
    char *bytes = read_file(test_path(path, sizeof path, file), &n);
    assert_ok(infer_picture_open(&p, vision, bytes, n, flags));
    free(bytes);
    return p;
}

static json_t *messages_of(const char *text) {
    json_error_t e;
    json_t *j = json_loads(text, 0, &e);
    if (!j) fail_msg("%s", e.text);
    return j;
}

/* writes "u:" and the content, in parts or not, and no end */
static const char
    knows[] =
        "{% for m in messages %}{{ m.role[0] }}:{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
        "{% if c.type == 'image' %}[<|endoftext|>]{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
    joins[] = "{% for m in messages %}{{ m.role[0] }}:{{ m.content | trim }}.{% endfor %}",
    drops[] = "{% for m in messages %}{{ m.role }}{% endfor %}",
    refuses[] =
        "{% for m in messages %}{% if m.content is not string %}{{ raise_exception('text alone') }}{% endif %}{{ m.content }}{% endfor %}";

static enum infer_status render(struct infer_prompt *p, const char *template, const char *text,
                                struct infer_picture *const *picture, int n) {
    const struct infer_prompt_template t = {
        .text = template, .n = strlen(template), .picture = picture, .n_picture = n};
    json_t *messages = messages_of(text);
    const enum infer_status e = infer_prompt_render(p, model, &t, messages, true);
    json_decref(messages);
    return e;
}

/* The prompt as text, rows as '*'. */
static void expect(const struct infer_prompt *p, const char *want) {
    char got[2048] = "";
    for (int i = 0, k = 0; i < p->n; i++) {
        size_t n;
        while (k < p->n_rows && i >= p->rows[k].at + p->rows[k].n) k++;
        const bool row = k < p->n_rows && i >= p->rows[k].at;
        const char *piece = infer_piece(model, p->ids[i], true, false, &n);
        strncat(got, row ? "*" : piece, row ? 1 : n);
    }
    assert_string_equal(got, want);
}

#define IMAGE(k) "{\"type\": \"image\", \"picture\": " #k "}"
#define TEXT(s)  "{\"type\": \"text\", \"text\": \"" s "\"}"
static const char two[] = "[{\"role\": \"user\", \"content\": [" TEXT("a ") "," IMAGE(0) "," TEXT(
    " b<|im_end|>") "]}, {\"role\": \"assistant\", "
                    "\"content\": \"ok\"}, {\"role\": \"user\", \"content\": [" IMAGE(1) "," IMAGE(0) "]}]";

static void where_templates_put_them(void **state) {
    (void)state;
    struct infer_picture *const pictures[] = {picture_of("rgb.png", 0), picture_of("turn6.jpg", 0)};
    struct infer_prompt p;
    /* 23 x 14 is 3 x 2 rows, turned 2 x 3; what a user writes as a token is text */
    assert_ok(render(&p, knows, two, pictures, 2));
    expect(&p, "u:a [<|im_end|>***\n***\n] b<|im_end|>a:oku:[<|im_end|>**\n**\n**\n][<|im_end|>***\n***\n]");
    assert_int_equal(p.n_rows, 7);
    infer_prompt_free(&p);
    assert_ok(render(&p, joins, two, pictures, 2));
    expect(
        &p,
        "u:a <|im_start|><|im_end|>***\n***\n<|im_end|> b<|im_end|>.a:ok.u:<|im_start|><|im_end|>**\n**\n**\n<|im_end|><|im_start|>"
        "<|im_end|>***\n***\n<|im_end|>.");
    infer_prompt_free(&p);
    assert_ok(render(&p, refuses, two, pictures, 2));
    assert_int_equal(p.n_rows, 7);
    infer_prompt_free(&p);
    assert_int_equal(render(&p, drops, two, pictures, 2), INFER_E_INPUT);
    assert_string_equal(infer_error(), "the chat template has places for 0 of 3 pictures");
    assert_int_equal(render(&p, knows, two, pictures, 1), INFER_E_INPUT);
    assert_string_equal(infer_error(), "message 2 names picture 1 of 1");
    infer_picture_free(pictures[0]);
    infer_picture_free(pictures[1]);
}

static void what_is_computed(void **state) {
    (void)state;
    struct infer_picture *a = picture_of("rgb.png", 0), *b, *c;
    struct infer_picture_info info;
    struct infer_prompt p, q;
    const char one[] = "[{\"role\": \"user\", \"content\": [" IMAGE(0) "]}]";
    infer_picture_info(a, &info);
    assert_int_equal(info.n_token, 9);
    assert_int_equal(info.width, 23);
    assert_string_equal(info.kind, "PNG");
    n_encoded = 0;
    assert_ok(render(&p, knows, one, &a, 1));
    infer_picture_free(a); /* the prompt keeps it */
    fails = INFER_E_NAN;
    assert_int_equal(infer_prompt_see(&p), INFER_E_NAN);
    fails = INFER_OK;
    assert_ok(infer_prompt_see(&p));
    assert_int_equal(n_encoded, 2);
    assert_ptr_equal(p.rows[1].embed, p.rows[0].embed + 3 * p.rows[0].stride);
    /* the same pixels in another file */
    b = picture_of("rgb.png", 0);
    c = picture_of("lossless.webp", 0);
    assert_ok(render(&q, knows, one, &b, 1));
    assert_ok(infer_prompt_see(&q));
    assert_ptr_equal(q.rows[0].embed, p.rows[0].embed);
    assert_int_equal(n_encoded, 2);
    infer_prompt_free(&q);
    assert_ok(render(&q, knows, one, &c, 1));
    assert_ok(infer_prompt_see(&q));
    assert_int_equal(n_encoded, 3);
    infer_prompt_free(&q);
    infer_prompt_free(&p);
    infer_picture_free(b);
    infer_picture_free(c);
}

static void towers_beside_models(void **state) {
    (void)state;
    char folder[] = "/tmp/infer-test-XXXXXX", path[512], found[512];
    static const char *const files[] = {"mmproj-Qwen3-VL-8B-F16.gguf", "mmproj-gemma-3-4b-it-f16.gguf",
                                        "mmproj-gemma-3-4b-it-bf16.gguf", "pixtral-12b-mmproj-f16.gguf",
                                        "mmproj-readme.txt"};
    static const struct {
        const char *model, *tower;
    } cases[] = {{"Qwen3-VL-8B-Q4_K_M.gguf", "mmproj-Qwen3-VL-8B-F16.gguf"},
                 {"gemma-3-4b-it-Q4_0.gguf", "mmproj-gemma-3-4b-it-bf16.gguf"},
                 {"pixtral-12b-Q8_0.gguf", "pixtral-12b-mmproj-f16.gguf"},
                 {"another.gguf", "mmproj-Qwen3-VL-8B-F16.gguf"}};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    assert_false(infer_vision_beside(path, found, sizeof found));
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        fclose(fopen(path, "w"));
    }
    for (int i = 0; i < 4; i++) {
        char want[512];
        snprintf(path, sizeof path, "%s/%s", folder, cases[i].model);
        snprintf(want, sizeof want, "%s/%s", folder, cases[i].tower);
        assert_true(infer_vision_beside(path, found, sizeof found));
        assert_string_equal(found, want);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* Every allocation fails once: a status, nothing lost, and the next time is as ever. */
static void memory(void **state) {
    (void)state;
    char path[512];
    size_t n;
    char *bytes = read_file(test_path(path, sizeof path, "fuzz/corpus/image/turn6.jpg"), &n);
    const char one[] = "[{\"role\": \"user\", \"content\": [" TEXT("a") "," IMAGE(0) "]}]";
    enum infer_status e = INFER_E_MEMORY;
    int k = 1;
    for (; e; k++) {
        struct infer_picture *picture;
        struct infer_prompt p = {0};
        mem_fail_at((uint64_t)k);
        e = infer_picture_open(&picture, vision, bytes, n, 0);
        if (!e) e = render(&p, k % 2 ? knows : joins, one, &picture, 1);
        if (!e) e = infer_prompt_see(&p);
        mem_fail_at(0);
        if (e && e != INFER_E_MEMORY) fail_msg("allocation %d: %s", k, infer_error());
        if (!e) assert_int_equal(p.n_rows, 3);
        infer_prompt_free(&p);
        infer_picture_free(picture);
        assert_true(k < 3000);
    }
    assert_true(k > 20);
    free(bytes);
}

/* Another thread computes what this one waits for. */
struct worker {
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool waits, over;
    int n_part;
};
static void tell(void *user) {
    struct worker *w = user;
    pthread_mutex_lock(&w->lock);
    w->waits = true;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
}
static void *work(void *user) {
    struct worker *w = user;
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        while (!w->waits && !w->over) pthread_cond_wait(&w->news, &w->lock);
        if (w->over) break;
        w->waits = false;
        w->n_part++;
        pthread_mutex_unlock(&w->lock);
        const bool more = infer_vision_work(vision, 0);
        pthread_mutex_lock(&w->lock);
        w->waits |= more;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void computed_elsewhere(void **state) {
    (void)state;
    struct worker w = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    struct infer_vision *usual = vision;
    assert_ok(infer_vision_open(&vision, model, "made up", NULL));
    assert_int_equal(pthread_create(&thread, NULL, work, &w), 0);
    infer_vision_share(vision, tell, &w);
    assert_false(infer_vision_work(vision, 0)); /* nothing waits */
    struct infer_picture *p = picture_of("grey.png", 0), *q = picture_of("grey.png", 0);
    fails = INFER_E_NAN;
    assert_int_equal(infer_picture_see(p), INFER_E_NAN);
    assert_string_equal(err_message(), "a tower that fails");
    fails = INFER_OK;
    assert_ok(infer_picture_see(p));
    assert_ok(infer_picture_see(q)); /* which was seen */
    pthread_mutex_lock(&w.lock);
    assert_in_range(w.n_part, 4, 4); /* one that failed, three of a picture */
    w.over = true;
    pthread_cond_signal(&w.news);
    pthread_mutex_unlock(&w.lock);
    pthread_join(thread, NULL);
    infer_picture_free(p);
    infer_picture_free(q);
    infer_vision_close(vision);
    vision = usual;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(where_templates_put_them),
                                       cmocka_unit_test(what_is_computed), cmocka_unit_test(memory),
                                       cmocka_unit_test(towers_beside_models),
                                       cmocka_unit_test(computed_elsewhere)};
    return cmocka_run_group_tests(tests, load, unload);
}
