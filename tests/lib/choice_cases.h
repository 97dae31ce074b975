/* Lists with a choice of positions, attention to what is chosen, or rows of a table by runs of tokens: for every backend that has them. */
#pragma once
#include "tests/lib/op_bench.h"

typedef void check_fn(struct bench *b, const char *what, const double tolerance[2]);

/* kv_put of all rows, the choice, and attention to what is chosen of the same keys. Choices are equal but where keys are kept in codes, whose
 * sums differ: there some of them may. */
static inline void choice_cases(check_fn *check) {
    static const struct {
        enum kv_type type;
        int heads, dim, value, top, far; /* value 0: the choice alone */
        int block, local;                /* local 0: whole runs, or positions; else a list for each head */
    } all[] = {{KV_F32, 3, 12, 0, 12, 0, 0, 0},
               {KV_F16, 5, 33, 16, 70, 0, 0, 0},
               {KV_F8, 5, 33, 0, 70, 0, 0, 0},
               {KV_Q8_0, 3, 64, 0, 40, 0, 0, 0},
               {KV_F16, 3, 32, 24, 260, 4 * KV_PAGE + 10, 0, 0},
               {KV_F32, 2, 16, 0, 260, 4 * KV_PAGE + 10, 0, 0},
               {KV_F32, 33, 8, 8, 1, 200, 0, 0},
               {KV_F32, 3, 12, 0, 3, 0, 8, 1},
               {KV_F16, 2, 32, 0, 5, 4 * KV_PAGE + 10, 16, 2},
               {KV_F32, 3, 12, 8, 6, 0, 4, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int H = all[i].heads, n = all[i].dim, value = all[i].value;
        const struct choice by = {.n_top = all[i].top,
                                  .block = all[i].block,
                                  .n_local = all[i].local,
                                  .whole = all[i].block && !all[i].local,
                                  .by_head = all[i].local};
        const int top = (by.by_head ? H : 1) * choice_room(&by);
        struct bench b = {.store = {0, 1, n, value, true, KV_F32, KV_F32, 0},
                          .kv = {0, N_SLOT * PAGES, PAGES},
                          .kv_type = all[i].type,
                          .whole = all[i].type <= KV_F16,
                          .far = all[i].far,
                          .no_fuse = i % 2};
        struct view x = input(&b, 2 * H * n + H + n, 0), q = view_columns(x, 0, H * n),
                    w = view_columns(x, H * n, H), k = view_columns(x, H * n + H, n),
                    other = view_columns(x, H * n + H + n, H * n), y = output(&b, value ? H * value : top),
                    chosen = value ? new_buf(&b, top, BUF_ROWS_ALL) : y;
        push(&b, (struct op){.kind = OP_KV_PUT, .kv_put = {k, {-1, 0, 0}, 0}});
        push(&b, (struct op){.kind = OP_INDEX, .index = {q, w, chosen, 0, H, by}});
        struct op_attend at = {.q = other, .out = y, .n_head = H, .scale = 0.05f, .chosen = chosen, .by = by};
        if (value) push(&b, (struct op){.kind = OP_ATTEND, .attend = at});
        char name[96];
        snprintf(name, sizeof name, "choice %d", (int)i);
        const double t = value ? TOL_OP_ATTEND : b.whole ? 0 : 0.1;
        check(&b, name, (const double[2]){t, t});
        bench_free(&b);
    }
}

/* Positions chosen by keys that are kept where runs end alone, put for all positions. */
static inline void choice_end_cases(check_fn *check) {
    static const struct {
        enum kv_type type;
        int block, top, heads;
        bool ends;
    } all[] = {{KV_F32, 4, 5, 3, false}, {KV_F16, 5, 3, 4, false}, {KV_F32, 3, 4, 1, true},
               {KV_F16, 16, 2, 5, true}, {KV_F16, 4, 6, 2, true},  {KV_F32, 128, 1, 2, true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int H = all[i].heads, n = i % 2 ? 64 : 33;
        const struct choice by = {
            .n_top = all[i].top, .block = all[i].block, .whole = !all[i].ends, .ends = all[i].ends};
        struct bench b = {.store = {0, 1, n, 0, true, KV_F32, KV_F32, by.block},
                          .kv = {0, N_SLOT * PAGES, PAGES},
                          .kv_type = all[i].type,
                          .whole = true,
                          .far = 4 * KV_PAGE + 10};
        assert_true(kv_page_bytes(&b.store) * (size_t)by.block <
                    (size_t)(KV_PAGE + 2 * by.block) * kv_k_bytes(&b.store));
        struct view x = input(&b, H * n + n, 0), y = output(&b, choice_room(&by));
        push(&b, (struct op){.kind = OP_KV_PUT, .kv_put = {view_columns(x, H * n, n), {-1, 0, 0}, 0}});
        struct op_index o = {view_columns(x, 0, H * n), {-1, 0, 0}, y, 0, H, by};
        push(&b, (struct op){.kind = OP_INDEX, .index = o});
        check(&b, "ends alone", (const double[2]){0, 0});
        bench_free(&b);
    }
}

/* A list for each of several key heads, whose values lie apart; the keys of the first one are chosen by. */
static inline void choice_head_cases(check_fn *check) {
    static const struct {
        enum kv_type type;
        int kv, each, dim, value, top, block;
    } all[] = {{KV_F32, 2, 1, 12, 7, 9, 0},
               {KV_F16, 3, 4, 32, 24, 5, 16},
               {KV_F16, 2, 8, 130, 64, 200, 0},
               {KV_F32, 4, 2, 64, 64, 3, 8}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int H = all[i].kv, n = all[i].dim, heads = H * all[i].each, nv = H * all[i].value;
        const struct choice by = {
            .n_top = all[i].top, .block = all[i].block, .n_local = all[i].block > 0, .by_head = true};
        struct bench b = {.store = {0, H, n, all[i].value, false, KV_F32, KV_F32, 0},
                          .kv = {0, N_SLOT * PAGES, PAGES},
                          .kv_type = all[i].type,
                          .whole = true,
                          .far = 4 * KV_PAGE + 10,
                          .no_fuse = i % 2};
        struct view x = input(&b, heads * n + 2 * H * n + nv, 0), q = view_columns(x, 0, heads * n),
                    k = view_columns(x, heads * n, H * n), w = view_columns(x, heads * n + H * n, H * n),
                    v = view_columns(x, heads * n + 2 * H * n, nv), y = output(&b, heads * all[i].value),
                    chosen = new_buf(&b, H * choice_room(&by), BUF_ROWS_ALL);
        push(&b, (struct op){.kind = OP_KV_PUT, .kv_put = {k, v, 0}});
        push(&b, (struct op){.kind = OP_INDEX, .index = {w, {-1, 0, 0}, chosen, 0, H, by}});
        struct op_attend at = {.q = q,
                               .out = y,
                               .n_head = heads,
                               .scale = 0.05f,
                               .softcap = i % 2 ? 3 : 0,
                               .chosen = chosen,
                               .by = by};
        push(&b, (struct op){.kind = OP_ATTEND, .attend = at});
        char name[96];
        snprintf(name, sizeof name, "lists of heads %d", (int)i);
        const double t = all[i].type == KV_F16 ? TOL_OP_ATTEND_F16 : TOL_OP_ATTEND;
        check(&b, name, (const double[2]){t, t});
        bench_free(&b);
    }
}

/* Rows of a table in three parts by runs of tokens: rows of three sequences, as below; ids 3 and 40 end a text. */
static inline void ngram_cases(const struct backend_type *type, check_fn *check) {
    enum { N = 7, K = 5, PARTS = 3 };
    static const int64_t mult[] = {1000003, 77377, 15485863, 611953}, rows[] = {19, 17, 13, 11, 7, 5},
                         first[] = {2, 1, 3, 0, 14, 16};
    for (int size = 2; size <= 4; size++)
        for (int end = 3; end < 50; end += 37) {
            struct bench b = {0};
            const struct ngram by = {size, 2 * (size - 1), end, 0, mult, rows, first};
            float *data = malloc(PARTS * N * K * sizeof *data);
            const void *part[PARTS] = {data + N * K, data, data + 2 * N * K};
            for (int i = 0; i < PARTS * N * K; i++) data[i] = gauss();
            b.group = (struct weight_group){.n_member = 1, .n = N, .k = K};
            b.group.member[0] = (struct weight){.name = "table",
                                                .type = QUANT_F32,
                                                .n = N,
                                                .k = K,
                                                .factor = 0.5f,
                                                .n_stack = PARTS,
                                                .part = part,
                                                .data = data};
            b.state.n_elem = by.n_head * (size - 1);
            b.ids = true;
            struct view y = output(&b, by.n_head * K);
            push(&b, (struct op){.kind = OP_NGRAM, .ngram = {y, 0, &b.group.member[0], &by}});
            char name[64];
            snprintf(name, sizeof name, "runs of %d tokens, %d ends a text", size, end);
            check(&b, name, (const double[2]){0, 0});
            /* the last ids of each sequence, for every head */
            float kept[N_SLOT * 6 * 3];
            static const int last[N_SLOT] = {39, 59, MAX_T - 1};
            b.kept = kept;
            run(&b, (struct setting){type, NULL, 1, ROW_PROMPT}, 0, MAX_T, NULL, NULL);
            for (int i = 0; i < N_SLOT * b.state.n_elem; i++)
                assert_true(kept[i] ==
                            (float)(last[i / b.state.n_elem] - (size - 2) + i % b.state.n_elem % (size - 1)));
            bench_free(&b);
        }
}
