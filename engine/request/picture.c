/* Pictures of files: decoded, measured, and computed by a tower, one at a time; what it made lately is kept by what the pixels are. */
#include "request/picture.h"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"
#include "cache/kv.h"
#include "engine_options.h"
#include "vision/image_decode.h"
#include "vision/image_resize.h"
#include "vision/tower.h"

enum {
    LOW = 512
}; /* pixels of the longer side of a picture that is looked at roughly, as OpenAI's "low" has it */

/* What the tower made of some pixels. */
struct seen {
    struct seen *next; /* older */
    struct prefix_key file, pixels;
    int refs; /* of pictures, and one of the list */
    size_t bytes;
    float rows[];
};

struct infer_vision {
    const struct infer_model *model;
    struct tower *tower;
    struct tower_info info;
    bool both_ways; /* as the text model has it */
    struct image_limits limits;
    struct prefix_secret secret;
    pthread_mutex_t lock;    /* of what follows */
    pthread_mutex_t compute; /* the tower's */
    struct seen *newest;
    size_t held, most; /* bytes that the list holds, at most */
    struct shared {
        void (*news)(void *user); /* NULL: pictures are computed where they are wanted */
        void *user;
        float *rows; /* of the picture that waits to be computed; NULL: none */
        enum infer_status status;
        char message[512];
        pthread_cond_t end;
    } shared;
};

struct picture_source {
    struct infer_vision *vision;
    void *bytes; /* bytes[n]: the file; NULL: it was seen */
    size_t n;
    bool low;
    struct image_head head;
    struct tower_fit fit;
    struct seen *seen;
};

/* ---- the tower ---- */

static bool named_mmproj(const char *name) {
    const size_t n = strlen(name);
    return strstr(name, "mmproj") && n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

static size_t common(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* How much of a model's name a tower's has, in front or behind "mmproj-". */
static size_t likeness(const char *tower, const char *model) {
    const char *rest = strstr(tower, "mmproj") + 6;
    const size_t a = common(tower, model), b = common(rest + (*rest == '-' || *rest == '_'), model);
    return a > b ? a : b;
}

bool infer_vision_beside(const char *model, char *path, size_t n) {
    struct stat st;
    bool there = false;
    char projector[64];
    if (stat(model, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(path, n, "%s", model);
        return tower_probe(model, projector, &there) == INFER_OK && there;
    }
    const char *slash = strrchr(model, '/');
    const int n_dir = slash ? (int)(slash - model) + 1 : 0;
    char dir[4096];
    snprintf(dir, sizeof dir, "%.*s", n_dir ? n_dir : 1, n_dir ? model : ".");
    DIR *d = opendir(dir);
    *path = 0;
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d));) {
        if (!named_mmproj(e->d_name)) continue;
        const char *name = model + n_dir, *best = path + n_dir;
        const size_t x = likeness(e->d_name, name), y = *path ? likeness(best, name) : 0;
        if (!*path || x > y || (x == y && strcmp(e->d_name, best) < 0))
            snprintf(path, n, "%.*s%s", n_dir, model, e->d_name);
    }
    closedir(d);
    return *path != 0;
}

/* The device of a word of .device. */
static enum infer_status place_tower(struct tower_options *to, const char *device) {
    const struct infer_engine_options o = {.device = device, .gpu_layers = -1, .cpu_experts = -1};
    struct plan_options po;
    struct placement place;
    TRY(engine_options_read(&po, &o));
    TRY(device_pick(&po.wish, &place));
    to->backend = place.device;
    to->card = place.card;
    return INFER_OK;
}

/* Without a place. */
static struct tower_options tower_of(const struct infer_model *m, const struct infer_vision_options *o) {
    struct infer_model_info info;
    infer_model_info(m, &info);
    return (struct tower_options){.n_embd = info.n_embd,
                                  .n_deepstack = info.n_deepstack,
                                  .cpu.threads = o->threads,
                                  .max_tokens = o->max_tokens};
}
static struct infer_vision_info sizes_of(const struct tower_info *t) {
    return (struct infer_vision_info){.projector = t->projector,
                                      .max_tokens = t->max_tokens,
                                      .weight_bytes = t->weight_bytes,
                                      .memory_bytes = t->memory_bytes,
                                      .device_bytes = t->device_bytes};
}

enum infer_status infer_vision_plan(const struct infer_model *m, const char *path,
                                    const struct infer_vision_options *options, bool card,
                                    struct infer_vision_info *out) {
    const struct infer_vision_options none = {0};
    struct tower_options to = tower_of(m, options ? options : &none);
    struct tower_info info;
    struct tower *t;
    to.plan = card ? TOWER_PLAN_CARD : TOWER_PLAN_HOST;
    TRY(tower_open(&t, path, &to));
    tower_info(t, &info);
    *out = sizes_of(&info);
    tower_close(t);
    return INFER_OK;
}

enum infer_status infer_vision_open(struct infer_vision **out, const struct infer_model *m, const char *path,
                                    const struct infer_vision_options *options) {
    const struct infer_vision_options none = {0}, *o = options ? options : &none;
    struct infer_model_info info;
    struct infer_vision *v;
    *out = NULL;
    infer_model_info(m, &info);
    struct tower_options to = tower_of(m, o);
    if (o->device) TRY(place_tower(&to, o->device));
    TRY(mem_new(&v, sizeof *v, "pictures"));
    enum infer_status e = tower_open(&v->tower, path, &to);
    if (e) {
        mem_free(v);
        return e;
    }
    tower_info(v->tower, &v->info);
    v->model = m;
    v->both_ways = info.both_ways;
    v->limits = IMAGE_LIMITS;
    if (o->max_bytes) v->limits.bytes = o->max_bytes;
    if (o->max_pixels) v->limits.pixels = o->max_pixels;
    v->most = o->cache_bytes ? o->cache_bytes : (size_t)256 << 20;
    v->secret = prefix_secret();
    pthread_mutex_init(&v->lock, NULL);
    pthread_mutex_init(&v->compute, NULL);
    pthread_cond_init(&v->shared.end, NULL);
    *out = v;
    return INFER_OK;
}

static void seen_drop(struct infer_vision *v, struct seen *s) {
    if (--s->refs) return;
    v->held -= s->bytes;
    mem_free(s);
}

void infer_vision_close(struct infer_vision *v) {
    if (!v) return;
    for (struct seen *s = v->newest, *next; s; s = next) {
        next = s->next;
        seen_drop(v, s);
    }
    if (v->held) infer_bug("a picture is left");
    tower_close(v->tower);
    pthread_mutex_destroy(&v->lock);
    pthread_mutex_destroy(&v->compute);
    pthread_cond_destroy(&v->shared.end);
    mem_free(v);
}

void infer_vision_info(const struct infer_vision *v, struct infer_vision_info *out) {
    *out = sizes_of(&v->info);
    out->path = v->info.path;
}

void infer_vision_cancel(struct infer_vision *v) { tower_cancel(v->tower); }

/* ---- by another thread, between its steps ---- */

/* Under v->lock: the picture that waits has its rows, or will have none. */
static void work_ends(struct infer_vision *v, enum infer_status st, const char *message) {
    struct shared *w = &v->shared;
    w->rows = NULL;
    w->status = st;
    snprintf(w->message, sizeof w->message, "%s", message);
    pthread_cond_broadcast(&w->end);
}

void infer_vision_share(struct infer_vision *v, void (*news)(void *user), void *user) {
    pthread_mutex_lock(&v->lock);
    v->shared.news = news;
    v->shared.user = user;
    if (!news && v->shared.rows) work_ends(v, INFER_E_CANCEL, "cancelled");
    pthread_mutex_unlock(&v->lock);
}

bool infer_vision_work(struct infer_vision *v, double seconds) {
    bool done;
    pthread_mutex_lock(&v->lock);
    float *rows = v->shared.rows;
    pthread_mutex_unlock(&v->lock);
    if (!rows) return false;
    const enum infer_status st = tower_step(v->tower, seconds, rows, &done);
    if (!st && !done) return true;
    pthread_mutex_lock(&v->lock);
    work_ends(v, st, st ? err_message() : "");
    pthread_mutex_unlock(&v->lock);
    return false;
}

/* A picture that was begun. */
static enum infer_status finish(struct infer_vision *v, float *rows) {
    struct shared *w = &v->shared;
    bool done = false;
    pthread_mutex_lock(&v->lock);
    void (*news)(void *) = w->news;
    void *user = w->user;
    if (news) w->rows = rows;
    pthread_mutex_unlock(&v->lock);
    if (!news) {
        while (!done) TRY(tower_step(v->tower, 3600, rows, &done));
        return INFER_OK;
    }
    news(user);
    pthread_mutex_lock(&v->lock);
    while (w->rows) pthread_cond_wait(&w->end, &v->lock);
    const enum infer_status st = w->status;
    if (st) err_set(st, "%s", w->message);
    pthread_mutex_unlock(&v->lock);
    return st;
}

/* ---- a picture ---- */

static enum infer_status measure(struct infer_picture *p, int width, int height) {
    struct picture_source *s = p->source;
    const struct tower *t = s->vision->tower;
    struct tower_part part;
    TRY(tower_fit(t, width, height, &s->fit));
    TRY(mem_new(&p->part, (size_t)s->fit.n_part * sizeof *p->part, "the parts of a picture"));
    for (p->n_part = 0; p->n_part < s->fit.n_part; p->n_part++) {
        struct picture_part *to = &p->part[p->n_part];
        tower_part(t, &s->fit, p->n_part, &part);
        snprintf(to->text, sizeof to->text, "%s", part.text);
        to->first_row = part.first_row;
        to->n_row = to->advance = part.n_row;
        if (!s->vision->info.three_positions || !to->n_row) continue;
        TRY(mem_new(&to->axis, (size_t)to->n_row * sizeof *to->axis, "positions of a picture"));
        tower_positions(t, &s->fit, p->n_part, 0, to->axis, &to->advance);
    }
    return INFER_OK;
}

/* width and height become those of a picture that is looked at roughly. */
static void roughly(int *width, int *height) {
    const int longer = *width > *height ? *width : *height, w = *width, h = *height;
    if (longer <= LOW) return;
    *width = w * LOW / longer > 1 ? w * LOW / longer : 1;
    *height = h * LOW / longer > 1 ? h * LOW / longer : 1;
}

static enum infer_status shrink(struct image *image, int width, int height) {
    struct image to;
    if (width == image->width && height == image->height) return INFER_OK;
    TRY(image_resize(image, width, height, IMAGE_BICUBIC, &to));
    image_free(image);
    *image = to;
    return INFER_OK;
}

static enum infer_status read_picture(struct infer_picture *p, const void *bytes, size_t n) {
    struct picture_source *s = p->source;
    TRY(image_head(&s->head, bytes, n, &s->vision->limits));
    TRY(mem_new(&s->bytes, n, "the file of a picture"));
    memcpy(s->bytes, bytes, n);
    s->n = n;
    int width = s->head.width, height = s->head.height;
    if (s->low) roughly(&width, &height);
    return measure(p, width, height);
}

enum infer_status infer_picture_open(struct infer_picture **out, struct infer_vision *v, const void *bytes,
                                     size_t n, unsigned flags) {
    struct infer_picture *p;
    *out = NULL;
    TRY(mem_new(&p, sizeof *p, "a picture"));
    atomic_init(&p->refs, 1);
    p->placeholder = v->info.placeholder;
    p->before = v->info.before;
    p->after = v->info.after;
    p->width = v->info.n_embd * (1 + v->info.n_deepstack);
    p->both_ways = v->both_ways;
    enum infer_status e = mem_new(&p->source, sizeof *p->source, "a picture");
    if (!e) {
        p->source->vision = v;
        p->source->low = flags & INFER_PICTURE_LOW;
        e = read_picture(p, bytes, n);
    }
    if (e)
        infer_picture_free(p);
    else
        *out = p;
    return e;
}

void infer_picture_free(struct infer_picture *p) {
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
    for (int k = 0; k < p->n_part; k++) mem_free(p->part[k].axis);
    struct picture_source *s = p->source;
    if (s) {
        mem_free(s->bytes);
        pthread_mutex_lock(&s->vision->lock);
        if (s->seen) seen_drop(s->vision, s->seen);
        pthread_mutex_unlock(&s->vision->lock);
    }
    mem_free(s);
    mem_free(p->part);
    mem_free(p);
}

void infer_picture_info(const struct infer_picture *p, struct infer_picture_info *out) {
    const struct picture_source *s = p->source;
    *out = (struct infer_picture_info){.kind = image_kind_name(s->head.kind),
                                       .width = s->head.width,
                                       .height = s->head.height,
                                       .to_width = s->fit.to_width,
                                       .to_height = s->fit.to_height,
                                       .n_token = s->fit.n_token};
    for (int k = 0; k < p->n_part; k++) {
        int32_t ids[sizeof p->part->text];
        size_t n = 0;
        const char *text = p->part[k].text;
        if (!infer_tokenize(s->vision->model, text, NULL, strlen(text), INFER_TOK_SPECIAL, ids,
                            sizeof ids / sizeof *ids, &n))
            out->n_token += (int)n;
    }
}

/* ---- rows ---- */

static struct prefix_key key_of(const struct infer_vision *v, const void *bytes, size_t n, int width,
                                int height) {
    enum { WORDS = 4096 };
    int32_t words[WORDS] = {width, height};
    struct prefix_key key = prefix_extend(&v->secret, (struct prefix_key){0}, words, 2, PREFIX_PROMPT);
    for (size_t at = 0; at < n; at += sizeof words) {
        const size_t some = n - at < sizeof words ? n - at : sizeof words;
        words[(some - 1) / 4] = 0; /* the last word may be used in part */
        memcpy(words, (const char *)bytes + at, some);
        key = prefix_extend(&v->secret, key, words, (int)((some + 3) / 4), PREFIX_PROMPT);
    }
    return key;
}

/* With a reference for s; it becomes the newest. pixels NULL: by the file alone, else it is the file's from now on. */
static bool find_seen(struct picture_source *s, struct prefix_key file, const struct prefix_key *pixels) {
    struct infer_vision *v = s->vision;
    pthread_mutex_lock(&v->lock);
    struct seen **at = &v->newest;
    while (*at && !(pixels ? prefix_same((*at)->pixels, *pixels) : prefix_same((*at)->file, file)))
        at = &(*at)->next;
    if ((s->seen = *at)) {
        *at = s->seen->next;
        s->seen->next = v->newest;
        v->newest = s->seen;
        s->seen->file = file;
        s->seen->refs++;
    }
    pthread_mutex_unlock(&v->lock);
    return s->seen != NULL;
}

/* The oldest that no picture has any more goes; false: there is none. */
static bool forget_one(struct infer_vision *v) {
    struct seen **oldest = NULL;
    for (struct seen **at = &v->newest; *at; at = &(*at)->next)
        if ((*at)->refs == 1) oldest = at;
    if (!oldest) return false;
    struct seen *s = *oldest;
    *oldest = s->next;
    seen_drop(v, s);
    return true;
}

static enum infer_status new_seen(struct infer_vision *v, int n_token, struct seen **out) {
    const size_t width = (size_t)v->info.n_embd * (size_t)(1 + v->info.n_deepstack);
    const size_t bytes = sizeof **out + (size_t)n_token * width * sizeof(float);
    enum infer_status e = INFER_OK;
    pthread_mutex_lock(&v->lock);
    while (v->held + bytes > v->most && forget_one(v)) continue;
    if (v->held + bytes > 8 * v->most)
        e = err_set(INFER_E_MEMORY,
                    "pictures that wait for an answer take %zu MiB, there is no room for more",
                    v->held >> 20);
    if (!e) v->held += bytes;
    pthread_mutex_unlock(&v->lock);
    if (e) return e;
    e = mem_new(out, bytes, "the rows of a picture");
    if (!e) {
        **out = (struct seen){.bytes = bytes, .refs = 2};
        return INFER_OK;
    }
    pthread_mutex_lock(&v->lock);
    v->held -= bytes;
    pthread_mutex_unlock(&v->lock);
    return e;
}

static enum infer_status compute(struct picture_source *s, const struct image *image, struct prefix_key file,
                                 struct prefix_key pixels) {
    struct infer_vision *v = s->vision;
    struct seen *made;
    TRY(new_seen(v, s->fit.n_token, &made));
    made->file = file;
    made->pixels = pixels;
    enum infer_status e = tower_begin(v->tower, image, &s->fit);
    if (!e) e = finish(v, made->rows);
    pthread_mutex_lock(&v->lock);
    if (e) {
        made->refs = 1;
        seen_drop(v, made);
    } else {
        made->next = v->newest;
        v->newest = made;
        s->seen = made;
    }
    pthread_mutex_unlock(&v->lock);
    return e;
}

static enum infer_status see_file(struct picture_source *s, struct prefix_key file) {
    struct infer_vision *v = s->vision;
    struct image image;
    TRY(image_decode(&image, s->bytes, s->n, &v->limits));
    enum infer_status e = shrink(&image, s->fit.width, s->fit.height);
    if (!e) {
        const struct prefix_key pixels =
            key_of(v, image.rgb, (size_t)image.width * (size_t)image.height * 3, image.width, image.height);
        pthread_mutex_lock(&v->compute);
        if (!find_seen(s, file, &pixels)) e = compute(s, &image, file, pixels);
        pthread_mutex_unlock(&v->compute);
    }
    image_free(&image);
    return e;
}

enum infer_status infer_picture_see(struct infer_picture *p) {
    struct picture_source *s = p->source;
    if (p->rows) return INFER_OK;
    const struct prefix_key file = key_of(s->vision, s->bytes, s->n, s->fit.width, s->fit.height);
    if (!find_seen(s, file, NULL)) TRY(see_file(s, file));
    p->rows = s->seen->rows;
    mem_free(s->bytes);
    s->bytes = NULL;
    return INFER_OK;
}

enum infer_status infer_prompt_see(struct infer_prompt *p) {
    const struct infer_picture *before = NULL;
    int k = 0;
    for (int i = 0; i < p->n_rows; i++, k++) {
        struct infer_picture *of = p->picture[i];
        TRY(infer_picture_see(of));
        if (of != before) k = 0;
        for (;; k++) { /* its next part with rows, or the first of the same one once more */
            if (k == of->n_part) k = 0;
            if (of->part[k].n_row) break;
        }
        p->rows[i].embed = of->rows + (size_t)of->part[k].first_row * (size_t)p->rows[i].stride;
        before = of;
    }
    return INFER_OK;
}
