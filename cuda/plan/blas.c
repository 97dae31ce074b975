#include "cuda/plan/blas.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/mem.h"

/* The part of cublasLt.h that is used, as its documentation gives it. */
enum {
    COMPUTE_32F = 68,
    COMPUTE_32F_FAST_TF32 = 77,
    DESC_TRANSA = 3,
    PREF_MAX_WORKSPACE_BYTES = 1,
    OP_T = 1,
    R_32F = 0, /* cudaDataType */
    R_16F = 2,
};
struct heuristic {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
typedef void *handle;

enum { PLAN_MAX = 64 };
struct blas_plan { /* one shape: descriptors and algorithm */
    struct blas_job job;
    handle desc, a, b, c;
    uint64_t algo[8];
};
struct blas {
    void *library;
    handle lt;
    int (*destroy)(handle);
    int (*desc_create)(handle *, int compute, int scale);
    int (*desc_destroy)(handle);
    int (*desc_set)(handle, int attribute, const void *value, size_t bytes);
    int (*layout_create)(handle *, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*layout_destroy)(handle);
    int (*pref_create)(handle *);
    int (*pref_destroy)(handle);
    int (*pref_set)(handle, int attribute, const void *value, size_t bytes);
    int (*pick)(handle, handle, handle, handle, handle, handle, handle, int, struct heuristic *, int *);
    int (*matmul)(handle, handle, const void *, const void *, handle, const void *, handle, const void *,
                  const void *, handle, void *, handle, const void *, void *, size_t, void *);
    struct blas_plan plan[PLAN_MAX];
    int n_plan;
};

static bool find(struct blas *b, void *slot, const char *name) {
    void *f = dlsym(b->library, name);
    memcpy(slot, &f, sizeof f);
    return f != NULL;
}

enum infer_status blas_open(struct blas **out) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    int (*create)(handle *);
    void *library = NULL;
    *out = NULL;
    for (int i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(INFER_E_DEVICE,
                       "libcublasLt.so.13 (or .12) was not found; LD_LIBRARY_PATH may name its folder");
    struct blas *b;
    enum infer_status st = mem_new(&b, sizeof *b, "cuBLASLt");
    if (st) {
        dlclose(library);
        return st;
    }
    b->library = library;
    bool all = find(b, &create, "cublasLtCreate") && find(b, &b->destroy, "cublasLtDestroy") &&
               find(b, &b->desc_create, "cublasLtMatmulDescCreate") &&
               find(b, &b->desc_destroy, "cublasLtMatmulDescDestroy") &&
               find(b, &b->desc_set, "cublasLtMatmulDescSetAttribute") &&
               find(b, &b->layout_create, "cublasLtMatrixLayoutCreate") &&
               find(b, &b->layout_destroy, "cublasLtMatrixLayoutDestroy") &&
               find(b, &b->pref_create, "cublasLtMatmulPreferenceCreate") &&
               find(b, &b->pref_destroy, "cublasLtMatmulPreferenceDestroy") &&
               find(b, &b->pref_set, "cublasLtMatmulPreferenceSetAttribute") &&
               find(b, &b->pick, "cublasLtMatmulAlgoGetHeuristic") && find(b, &b->matmul, "cublasLtMatmul");
    int e = all ? create(&b->lt) : -1;
    if (e) {
        blas_close(b);
        return all ? err_set(INFER_E_DEVICE, "cublasLtCreate: status %d", e)
                   : err_set(INFER_E_DEVICE, "this libcublasLt has not all functions that are needed");
    }
    *out = b;
    return INFER_OK;
}

void blas_close(struct blas *b) {
    if (!b) return;
    for (int i = 0; i < b->n_plan; i++) {
        b->layout_destroy(b->plan[i].a);
        b->layout_destroy(b->plan[i].b);
        b->layout_destroy(b->plan[i].c);
        b->desc_destroy(b->plan[i].desc);
    }
    if (b->lt) b->destroy(b->lt);
    dlclose(b->library);
    mem_free(b);
}

/* In the library's words (columns first) W is a transposed k x n, x a k x rows, out an n x rows. */
static int blas_plan_make(struct blas *b, struct blas_plan *p, const struct blas_job *j) {
    struct heuristic h;
    handle pref = NULL;
    int n = 0, e, t = OP_T, type = j->type == BLAS_F16 ? R_16F : R_32F;
    size_t workspace = BLAS_WORKSPACE;
    *p = (struct blas_plan){.job = *j};
    e = b->desc_create(&p->desc, j->type == BLAS_F16 ? COMPUTE_32F : COMPUTE_32F_FAST_TF32, R_32F);
    if (!e) e = b->desc_set(p->desc, DESC_TRANSA, &t, sizeof t);
    if (!e) e = b->layout_create(&p->a, type, (uint64_t)j->k, (uint64_t)j->n, j->k);
    if (!e) e = b->layout_create(&p->b, type, (uint64_t)j->k, (uint64_t)j->rows, j->x_row);
    if (!e) e = b->layout_create(&p->c, R_32F, (uint64_t)j->n, (uint64_t)j->rows, j->out_row);
    if (!e) e = b->pref_create(&pref);
    if (!e) e = b->pref_set(pref, PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (!e) e = b->pick(b->lt, p->desc, p->a, p->b, p->c, p->c, pref, 1, &h, &n);
    if (pref) b->pref_destroy(pref);
    if (!e && n < 1) e = -1;
    if (!e) memcpy(p->algo, h.algo, sizeof p->algo);
    return e;
}

static bool same_shape(const struct blas_job *a, const struct blas_job *b) {
    return a->type == b->type && a->n == b->n && a->rows == b->rows && a->k == b->k && a->x_row == b->x_row &&
           a->out_row == b->out_row;
}

enum infer_status blas_matmul(struct blas *b, const struct blas_job *j, void *workspace, void *stream) {
    struct blas_plan *p = NULL, once;
    for (int i = 0; i < b->n_plan && !p; i++)
        if (same_shape(&b->plan[i].job, j)) p = &b->plan[i];
    bool keep = !p && b->n_plan < PLAN_MAX;
    if (!p) {
        p = keep ? &b->plan[b->n_plan++] : &once;
        int e = blas_plan_make(b, p, j);
        if (e)
            return err_set(INFER_E_DEVICE, "cuBLASLt has no product for %d x %d x %d: status %d", j->n,
                           j->rows, j->k, e);
    }
    const float one = 1, beta = j->add ? 1.f : 0.f;
    int e = b->matmul(b->lt, p->desc, &one, j->w, p->a, j->x, p->b, &beta, j->out, p->c, j->out, p->c,
                      p->algo, workspace, BLAS_WORKSPACE, stream);
    if (p == &once) {
        b->layout_destroy(once.a);
        b->layout_destroy(once.b);
        b->layout_destroy(once.c);
        b->desc_destroy(once.desc);
    }
    return e ? err_set(INFER_E_DEVICE, "cublasLtMatmul: status %d", e) : INFER_OK;
}
