/* status and mem: messages, escapes, checked sizes, arenas, the k-th failing allocation; the table of a card's kernels and
 * what is kept of it, and where a tied embedding lies; nodes, cores and threads; the table of cards. */
#include "tests/lib/test.h"
#include "plan/card.h"
#include "base/mem.h"
#include "quant/quant.h"
#include "tests/lib/folder.h"
#include "base/numa.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "cuda/plan/cuda_plan.h"
#include "cuda/plan/cuda_routes.h"
#include "cuda/plan/tune.h"

static void escapes_controls(void **state) {
    (void)state;
    char out[64];
    text_escape(out, sizeof out, "a\x1b]52\x07\xc3\xa9\xff\xc2\x9b", 11);
    assert_string_equal(out, "a\\x1b]52\\x07\xc3\xa9\\xff\\xc2\\x9b");
    text_escape(out, 4, "abc\xc3\xa9", 5);
    assert_string_equal(out, "abc");
    assert_int_equal(err_set(INFER_E_INPUT, "bad %s at %d", "\x1b[2J", 7), INFER_E_INPUT);
    assert_string_equal(err_message(), "bad \\x1b[2J at 7");
    err_prefix(INFER_E_INPUT, "file %s", "x");
    assert_string_equal(err_message(), "file x: bad \\x1b[2J at 7");
}

static void sizes_do_not_wrap(void **state) {
    (void)state;
    size_t n = 5;
    assert_false(size_mul(SIZE_MAX / 2, 3, &n));
    assert_false(size_add(SIZE_MAX, 1, &n));
    assert_false(size_align(SIZE_MAX - 3, 64, &n));
    assert_int_equal(n, 5);
    assert_true(size_align(65, 64, &n));
    assert_int_equal(n, 128);
    assert_null(mem_alloc(SIZE_MAX - 8));
}

static void arenas_align_and_fail(void **state) {
    (void)state;
    struct arena a = {0};
    for (size_t n = 1; n < 200000; n = n * 3 + 1) {
        unsigned char *p = arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (n >= 64 ? 64 : 16), 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xee, n);
    }
    mem_fail_at(1);
    assert_null(arena_alloc(&a, 1 << 20));
    mem_fail_at(0);
    assert_non_null(arena_alloc(&a, 1 << 20));
    arena_free(&a);
}

static void halves_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
        if (!isnan(f)) assert_int_equal(f32_to_f16(f), h);
        if (!isnan(b)) assert_int_equal(f32_to_bf16(b), h);
    }
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(0x1p-25f), 0);   /* tie to even */
    assert_int_equal(f32_to_f16(0x1.8p-24f), 2); /* tie to even, upwards */
    assert_int_equal(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
    assert_true(isnan(f16_to_f32(f32_to_f16(NAN))));
}

/* Every layout has kernels for one decode row and for many, in a group of fused ones from sm_90 on; F32 has the plain list. */
static void decode_routes_have_no_hole(int chip, enum layout l) {
    static const enum route_group groups[] = {GROUP_STREAM, GROUP_STREAM_NARROW, GROUP_PLAIN};
    bool one = false, many = false;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        if (groups[g] == GROUP_PLAIN && chip >= 90 && l != LAYOUT_F32) continue;
        int index[ROUTE_MAX], n = route_entries(groups[g], l, chip, index);
        for (int i = 0; i < n; i++) {
            const struct route *r = &cuda_routes[index[i]];
            if (r->cls != ROW_DECODE) continue;
            one |= r->tokens == 1 || r->group == GROUP_PLAIN;
            many |= r->tokens >= 32;
        }
    }
    if (!one || !many) fail_msg("sm_%d, %s: no kernel for decode rows", chip, route_layout_name(l));
}
/* Every layout has a kernel on every chip under all options, for any number of rows. */
static void routes_have_no_hole(void **state) {
    (void)state;
    static const int chips[] = {80, 86, 87, 89, 90, 100, 103, 120, 121},
                     rows[] = {1, 32, 33, 64, 65, 128, 129, 256, 257, 4096};
    for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
        for (int l = 0; l < LAYOUT_COUNT; l++) decode_routes_have_no_hole(chips[c], (enum layout)l);
    for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
        for (int o = 0; o < 16; o++)
            for (int l = 0; l < LAYOUT_COUNT; l++) {
                struct route_case rc = {.sm = chips[c],
                                        .only_mma = o & 1,
                                        .blas = (o & 2) != 0,
                                        .strict_fp32 = (o & 4) != 0,
                                        .block_scaled = (o & 8) != 0};
                enum route_group g = route_prompt_group(&rc, (enum layout)l);
                for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
                    int r = route_default(g, (enum layout)l, chips[c], 132, 896, rows[n]);
                    if (r < 0 || r >= n_cuda_route)
                        fail_msg("sm_%d, %s: no kernel", chips[c], route_layout_name((enum layout)l));
                    assert_int_equal(cuda_routes[r].group, g);
                    assert_int_equal(cuda_routes[r].cls, ROW_PROMPT);
                }
                if (o & 1) assert_int_not_equal(g, GROUP_WGMMA);
            }
    for (int b = 0; b < ROUTE_BUCKETS; b++) assert_int_equal(route_bucket(route_bucket_rows(b)), b);
}

/* Rows over a multiple of 256 fit beside the others: a card of 132 processors takes matrices of 4,096, 8,192 and 16,384 rows, at most four,
 * two and one tiles of tokens at once, in one round up to 320 rows a tile, and in the fewest that are wide enough. */
static void few_rows_more_cost_no_round(void **state) {
    (void)state;
    static const int slabs[] = {256, 512, 1024};
    for (int i = 0; i < 3; i++)
        for (int n = 1024 >> i; n <= 1280 >> i; n++) {
            int r = route_default(GROUP_WGMMA, LAYOUT_Q4K, 90, 132, slabs[i], n),
                tokens = cuda_routes[r].tokens, tiles = slabs[i] / 16 * ((n + tokens - 1) / tokens),
                least = (n + (4 >> i) - 1) / (4 >> i);
            if (tiles > 66) fail_msg("%d rows: %d tiles of %d tokens", n, tiles, tokens);
            if (tokens < least || tokens >= least + 32)
                fail_msg("%d rows: tiles of %d tokens for %d", n, tokens, least);
        }
}

/* What was measured is found again by the same card and build, and by no other; a damaged file is an empty one. */
static void tuned_entries_are_kept(void **state) {
    (void)state;
    char folder[] = "/tmp/infer-test-XXXXXX", path[64], name[32];
    struct tune *t;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    assert_ok(tune_open(&t, "card", 13000));
    assert_int_equal(tune_get(t, "a", -1), -1);
    tune_set(t, "a", 5);
    tune_set(t, "ab", 6);
    tune_set(t, "a", 7);
    assert_ok(tune_save(t));
    tune_close(t);
    assert_ok(tune_open(&t, "card", 13000));
    assert_int_equal(tune_get(t, "a", -1), 7);
    assert_int_equal(tune_get(t, "ab", -1), 6);
    for (int i = 0; i < 12000; i++) { /* beyond the cap: the oldest go */
        snprintf(name, sizeof name, "entry %d", i);
        tune_set(t, name, i);
    }
    assert_ok(tune_save(t));
    tune_close(t);
    snprintf(path, sizeof path, "%s/infer/routes", folder);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    assert_true(ftell(f) <= 256 << 10);
    assert_ok(tune_open(&t, "card", 13000));
    assert_int_equal(tune_get(t, "a", -1), -1);
    assert_int_equal(tune_get(t, "entry 11999", -1), 11999);
    tune_close(t);
    assert_ok(tune_open(&t, "card", 13010)); /* another driver */
    assert_int_equal(tune_get(t, "entry 11999", -1), -1);
    tune_close(t);
    rewind(f);
    for (int i = 0; i < 300 << 10; i++) fputc(i % 251, f);
    fclose(f);
    assert_ok(tune_open(&t, "card", 13000));
    assert_int_equal(tune_get(t, "entry 11999", -1), -1);
    tune_set(t, "a", 1);
    assert_int_equal(tune_get(t, "a", -1), 1);
    tune_close(t);
    unlink(path);
    snprintf(path, sizeof path, "%s/infer", folder);
    rmdir(path);
    rmdir(folder);
    unsetenv("XDG_CACHE_HOME");
}

/* A table of its own is handed on: it counts for a card of that name, and what is no table is refused with its line. */
static void tuned_entries_are_pinned(void **state) {
    (void)state;
    char path[] = "/tmp/infer-test-XXXXXX", text[128];
    struct tune *t;
    close(mkstemp(path));
    unlink(path);
    assert_int_equal(tune_open_file(&t, "card", path, false), INFER_E_IO); /* what is read has to be there */
    assert_null(t);
    assert_int_equal(tune_open_file(&t, "card", "/none/of/these", true), INFER_E_IO);
    assert_ok(tune_open_file(&t, "card", path, true));
    tune_set(t, "a <=64", 5);
    tune_set(t, "b", 6);
    tune_set(t, "a <=64", 7);
    assert_int_equal(tune_count(t), 2);
    assert_ok(tune_save(t));
    tune_close(t);
    assert_ok(tune_open_file(&t, "card", path, false));
    assert_int_equal(tune_get(t, "a <=64", -1), 7);
    tune_close(t);
    assert_ok(tune_open_file(&t, "another card", path, false));
    assert_int_equal(tune_get(t, "b", -1) + tune_count(t), -1);
    tune_close(t);
    static const char *const wrong[] = {"card\ta\t7\ncard\tb\n", "card\ta\t7\nx", "card\ta\t7\ncard\tb\t-1\n",
                                        "card\ta\t7\n\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FILE *f = fopen(path, "w");
        assert_true(f && fputs(wrong[i], f) >= 0 && fclose(f) == 0);
        assert_int_equal(tune_open_file(&t, "card", path, true), INFER_E_INPUT);
        snprintf(text, sizeof text, "%s: line 2 ", path);
        assert_memory_equal(err_message(), text, strlen(text));
    }
    assert_int_equal(tune_open_file(&t, "card", "/dev/zero", false), INFER_E_INPUT);
    unlink(path);
}

/* A tree like /sys/devices/system: 2 nodes of 4 cores of 2 hardware threads; cpu c and c + 8 are one core. */
static void make_sys(const struct folder *d) {
    char command[1200];
    snprintf(
        command, sizeof command,
        "cd '%s' && mkdir -p node/node0 node/node1 && echo 0-1 > node/online && echo 0-15 > cpu_online && "
        "echo 0-3,8-11 > node/node0/cpulist && echo 4-7,12-15 > node/node1/cpulist && "
        "for c in 0 1 2 3 4 5 6 7; do for i in $c $((c+8)); do mkdir -p cpu/cpu$i/topology; "
        "echo $c,$((c+8)) > cpu/cpu$i/topology/thread_siblings_list; done; done; mv cpu_online cpu/online",
        d->path);
    assert_int_equal(system(command), 0);
}
/* Of n threads: as many on each node as said, those of a node side by side, cores apart. */
static void check_place(const struct topology *t, int n, int on_first, int on_second) {
    struct topology_cpu place[TOPOLOGY_CPUS];
    topology_place(t, n, place);
    for (int i = 0; i < n; i++) {
        struct topology_set set;
        int node = place[i].node;
        assert_int_equal(node, i >= on_first);
        topology_node(t, node, &set);
        assert_true(set.word[place[i].cpu / 64] >> place[i].cpu % 64 & 1);
        for (int k = 0; k < i; k++) {
            assert_int_not_equal(place[i].cpu, place[k].cpu);
            if (n <= t->n_core) assert_false(place[i].core == place[k].core && node == place[k].node);
        }
    }
    assert_int_equal(on_first + on_second, n);
}

static void threads_spread_over_nodes(void **state) {
    (void)state;
    struct folder d;
    struct topology t;
    struct topology_set allowed = {
        {0x3f | 1 << 8}}; /* node 0 whole but for three siblings, two cores of node 1 */
    folder_make(&d);
    make_sys(&d);
    topology_read_sys(&t, d.path, NULL);
    assert_int_equal(t.n, 16);
    assert_int_equal(t.n_core, 8);
    assert_int_equal(t.n_node, 2);
    for (int n = 2; n <= 16; n += 2) check_place(&t, n, n / 2, n / 2);
    check_place(&t, 1, 1, 0);
    check_place(&t, 3, 2, 1);
    topology_read_sys(&t, d.path, &allowed);
    assert_int_equal(t.n, 7);
    assert_int_equal(t.n_core, 6);
    check_place(&t, 3, 2, 1);
    check_place(&t, 6, 4, 2);
    check_place(&t, 7, 5, 2);
    folder_remove(&d);
    topology_read_sys(&t, d.path,
                      &allowed); /* a kernel that says nothing: one node, as many cores as threads */
    assert_int_equal(t.n_core, 7);
    assert_int_equal(t.n_node, 1);
}

/* The same machine as hwloc makes it up. */
static void nodes_by_hwloc(void **state) {
    (void)state;
    struct topology t;
    setenv("HWLOC_SYNTHETIC", "node:2 core:4 pu:2", 1);
    topology_read(&t);
    unsetenv("HWLOC_SYNTHETIC");
    if (strcmp(t.source, "hwloc") != 0) {
        print_message("libhwloc.so.15 is not there: nothing to check\n");
        skip();
    }
    assert_false(t.here);
    assert_int_equal(t.n, 16);
    assert_int_equal(t.n_core, 8);
    assert_int_equal(t.n_node, 2);
    for (int n = 2; n <= 16; n += 2) check_place(&t, n, n / 2, n / 2);
    topology_read(&t);
    assert_true(t.here);
    assert_true(t.n > 0);
}

/* Where the plan of a card has the rows of an embedding of that shape: 0 those of the head, 1 its own. */
static int embedding_group(enum quant_type type, int n, int k) {
    static const uint8_t data[1];
    struct weight_group head = {.n_member = 1, .n = 256, .k = 512};
    head.member[0] = (struct weight){
        .name = "head", .type = QUANT_Q4_K, .n = 256, .k = 512, .factor = 1, .n_stack = 1, .data = data};
    struct weight embedding = head.member[0];
    embedding.type = type;
    embedding.n = n;
    embedding.k = k;
    const struct weight_group *group = &head;
    struct op op = {.kind = OP_MATMUL};
    op.matmul.w = &head;
    struct op_list list = {.op = &op, .n_op = 1, .max_rows = 1, .max_out = 1};
    struct backend_config c = {
        .group = &group, .n_group = 1, .embedding = &embedding, .n_embd = k, .n_slot = 1};
    c.list[ROW_DECODE] = &list;
    struct cuda_plan p;
    assert_int_equal(cuda_plan_make(&p, &c), INFER_OK);
    const int at = p.embedding;
    assert_int_equal(p.n_group, at + 1);
    cuda_plan_free(&p);
    return at;
}
static void a_tied_embedding_is_the_same_matrix(void **state) {
    (void)state;
    assert_int_equal(embedding_group(QUANT_Q4_K, 256, 512), 0);
    assert_int_equal(embedding_group(QUANT_Q4_K, 1024, 512), 1);
    assert_int_equal(embedding_group(QUANT_Q4_K, 256, 1024), 1);
    assert_int_equal(embedding_group(QUANT_Q6_K, 256, 512), 1);
}

/* Every card is found by its own name, and no two share one; its rates are those of some chip. */
static void cards_have_a_name_each(void **state) {
    int n;
    const struct card *all = card_table(&n);
    (void)state;
    for (int i = 0; i < n; i++) {
        const struct card *c = &all[i];
        struct card found = {0};
        enum infer_status st = card_find(c->name, &found);
        if (st != (c->sm < 80 ? INFER_E_UNSUPPORTED : INFER_OK) || strcmp(found.name, c->name) != 0)
            fail_msg("%s: finds '%s'", c->name, found.name);
        double flops_of_clock = c->f16_tflops * 1e6 / c->n_sm; /* at 1 MHz */
        if (!(c->read_gb_s >= 168 && c->read_gb_s <= 8000) || c->memory_bytes < (uint64_t)4 << 30 ||
            !*c->source || !(flops_of_clock / 2000 > 256 && flops_of_clock / 1000 < 16384) ||
            c->int8_tops < c->f16_tflops || c->tf32_tflops > c->f16_tflops)
            fail_msg("%s: %g GB/s, %g TFLOP/s of %d", c->name, c->read_gb_s, c->f16_tflops, c->n_sm);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_controls),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(arenas_align_and_fail),
        cmocka_unit_test(routes_have_no_hole),
        cmocka_unit_test(few_rows_more_cost_no_round),
        cmocka_unit_test(tuned_entries_are_kept),
        cmocka_unit_test(tuned_entries_are_pinned),
        cmocka_unit_test(halves_round_trip),
        cmocka_unit_test(threads_spread_over_nodes),
        cmocka_unit_test(nodes_by_hwloc),
        cmocka_unit_test(a_tied_embedding_is_the_same_matrix),
        cmocka_unit_test(cards_have_a_name_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
