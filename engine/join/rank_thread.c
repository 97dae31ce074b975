#include "join/rank_call.h"
#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

struct rank_thread {
    struct rank base;
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    atomic_uint asked, done; /* calls */
    bool stop;
    struct rank_call *call;
    enum infer_status (*open)(void *user, struct backend **out);
    void *user;
    struct backend *backend;
    enum infer_status status;
    char message[512];
};

enum infer_status rank_do(struct backend *b, struct rank_call *c) {
    const struct backend_type *t = b->type;
    switch (c->ask) {
    case RANK_UPLOAD:
        return t->upload(b);
    case RANK_COMPILE:
        return t->compile(b, c->cls);
    case RANK_RUN:
        return t->run(b, c->cls, c->step);
    case RANK_WAIT:
        return t->wait(b, &c->result);
    case RANK_KV_COPY:
        return t->kv_copy(b, c->store, c->from, c->to);
    case RANK_KV_READ:
        return c->write ? t->kv_write(b, c->store, c->page, c->k, c->v)
                        : t->kv_read(b, c->store, c->page, c->k, c->v);
    case RANK_KV_PAGE:
        return t->kv_page(b, c->store, c->page, c->bytes, c->write);
    case RANK_STATE_READ:
        return c->write ? t->state_write(b, c->store, c->page, c->k)
                        : t->state_read(b, c->store, c->page, c->k);
    case RANK_STATE_COPY:
        return t->state_copy(b, c->from, c->to);
    case RANK_READY:
    case RANK_CLOSE:
        return INFER_OK;
    }
    infer_bug("call %d", (int)c->ask);
}

/* Looks for some 50 us, as long as a sampler takes between two steps, then sleeps. */
static bool next_call(struct rank_thread *t, unsigned done) {
    enum { SPINS = 2000 };
    for (int i = 0; i < SPINS && atomic_load(&t->asked) == done; i++) __builtin_ia32_pause();
    pthread_mutex_lock(&t->mutex);
    while (atomic_load(&t->asked) == done && !t->stop) pthread_cond_wait(&t->wake, &t->mutex);
    const bool there = atomic_load(&t->asked) != done;
    pthread_mutex_unlock(&t->mutex);
    return there;
}

static void *work(void *user) {
    struct rank_thread *t = user;
    for (unsigned done = 0; next_call(t, done);) {
        t->status = t->call ? rank_do(t->backend, t->call) : t->open(t->user, &t->backend);
        if (t->status != INFER_OK) snprintf(t->message, sizeof t->message, "%s", err_message());
        atomic_store(&t->done, ++done);
    }
    if (t->backend) t->backend->type->close(t->backend);
    return NULL;
}

static void begin(struct rank *r, struct rank_call *call) {
    struct rank_thread *t = (struct rank_thread *)r;
    pthread_mutex_lock(&t->mutex);
    t->call = call;
    atomic_fetch_add(&t->asked, 1);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
}
static enum infer_status end(struct rank *r) {
    enum { SPINS = 2000 };
    struct rank_thread *t = (struct rank_thread *)r;
    for (int i = 0; atomic_load(&t->done) != atomic_load(&t->asked); i++) {
        if (i < SPINS)
            __builtin_ia32_pause();
        else
            sched_yield();
    }
    return t->status == INFER_OK ? INFER_OK : err_set(t->status, "%s", t->message);
}
static void info(const struct rank *r, struct backend_info *out) {
    const struct backend *b = ((const struct rank_thread *)r)->backend;
    b->type->info(b, out);
}
static void free_thread(struct rank *r) {
    struct rank_thread *t = (struct rank_thread *)r;
    if (t->runs) {
        pthread_mutex_lock(&t->mutex);
        t->stop = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->mutex);
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->mutex);
    mem_free(t);
}
static const struct rank_type type = {.begin = begin, .end = end, .info = info, .free = free_thread};

enum infer_status rank_thread_new(struct rank **out) {
    struct rank_thread *t;
    *out = NULL;
    TRY(mem_new(&t, sizeof *t, "a rank"));
    t->base.type = &type;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->wake, NULL);
    if (pthread_create(&t->thread, NULL, work, t)) {
        free_thread(&t->base);
        return err_set(INFER_E_MEMORY, "no thread for a rank");
    }
    t->runs = true;
    *out = &t->base;
    return INFER_OK;
}
enum infer_status rank_thread_open(struct rank *r,
                                   enum infer_status (*open)(void *user, struct backend **out), void *user) {
    struct rank_thread *t = (struct rank_thread *)r;
    t->open = open, t->user = user;
    begin(r, NULL);
    return end(r);
}
