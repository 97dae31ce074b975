/* Tokenizer: hand-made vocabularies with ids worked out by hand, round trips over random text, special tokens in
 * text of users, broken vocabularies, failing allocations, streaming; and the outside vectors where they are. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "tests/lib/tok_ids.h"
#include "tests/lib/tok_vocab.h"
#include <pthread.h>

static struct tok *bpe, *spm, *uni, *wp;
static struct tensorfile *bpe_file, *spm_file, *uni_file, *wp_file;

static int open_all(void **state) {
    (void)state;
    struct vocab_file v;
    vf_bpe(&v, "gpt-2");
    if (vf_open(&v, &bpe_file) || tok_open(&bpe, bpe_file)) return -1;
    vf_spm(&v);
    if (vf_open(&v, &spm_file) || tok_open(&spm, spm_file)) return -1;
    static unsigned char map[8192];
    vf_unigram(&v, map, vf_charsmap(map));
    if (vf_open(&v, &uni_file) || tok_open(&uni, uni_file)) return -1;
    vf_wordpiece(&v);
    if (vf_open(&v, &wp_file) || tok_open(&wp, wp_file)) return -1;
    return 0;
}
static int close_all(void **state) {
    (void)state;
    tok_close(bpe);
    tok_close(spm);
    tok_close(uni);
    tok_close(wp);
    tensorfile_close(uni_file);
    tensorfile_close(wp_file);
    tensorfile_close(bpe_file);
    tensorfile_close(spm_file);
    return 0;
}

static void bpe_merges_in_order(void **state) {
    (void)state;
    check_ids(bpe, "", NULL, 0, NO_IDS);
    check_ids(bpe, "hello", NULL, 0, IDS(BPE_HELLO));
    check_ids(bpe, "hello hello", NULL, 0, IDS(BPE_HELLO, BPE__HELLO));
    check_ids(bpe, "helo", NULL, 0, IDS(BPE_HE, 'l', 'o'));
    check_ids(bpe, "aaaaa", NULL, 0, IDS(BPE_AAAA, 'a'));
    check_ids(bpe, "aaa", NULL, 0, IDS(BPE_AA, 'a'));
    check_ids(bpe, "zq", NULL, 0, IDS('z', 'q')); /* a token, but no merge makes it */
    check_ids(bpe, "a1 a", NULL, 0, IDS('a', '1', ' ', 'a'));
    check_ids(bpe, "\xe2\x82\xac", NULL, 0, IDS(BPE_EURO2, 0xac));
    check_ids(bpe, "a\xff\xe2\x82", NULL, 0, IDS('a', 0xff, 0xe2, 0x82)); /* broken: byte for byte */
}

static void whole_tokens_beat_merges(void **state) {
    (void)state;
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    vf_bpe(&v, "llama-bpe");
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    check_ids(t, "zq", NULL, 0, IDS(BPE_ORPHAN));
    check_ids(t, "zqz", NULL, 0, IDS('z', 'q', 'z'));
    check_ids(t, "zq", NULL, TOK_ADD, IDS(BPE_START, BPE_ORPHAN));
    tok_close(t);
    tensorfile_close(f);
}

/* Falcon's digits are cut behind the byte alphabet, where the bytes B2 B3 B9 BC BD BE are numbers and those of U+2160 are not. */
static void falcon_cuts_bytes(void **state) {
    (void)state;
    enum { SPACE_E2 = 256, HALF, TWO_DIGITS };
    static const char *const merges[] = {"\xc4\xa0 \xc3\xa2", "\xc3\x82 \xc2\xbd", "1 1"};
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "gpt2");
    vf_key_str(&v, "tokenizer.ggml.pre", "falcon");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 259);
    for (unsigned b = 0; b < 256; b++) {
        char s[4];
        vf_alphabet(s, b);
        vf_str(&v, s);
    }
    vf_str(&v, "\xc4\xa0\xc3\xa2");
    vf_str(&v, "\xc3\x82\xc2\xbd");
    vf_str(&v, "11");
    vf_key_array(&v, "tokenizer.ggml.merges", META_STRING, 3);
    for (int i = 0; i < 3; i++) vf_str(&v, merges[i]);
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    check_ids(t, " \xe2\x85\xa0", NULL, 0, IDS(SPACE_E2, 0x85, 0xa0));
    check_ids(t, " \xe2\x91\xa0", NULL, 0, IDS(SPACE_E2, 0x91, 0xa0));
    check_ids(t, " \xc2\xbd", NULL, 0, IDS(' ', 0xc2, 0xbd));
    check_ids(t, "1111", NULL, 0, IDS(TWO_DIGITS, '1', '1'));
    check_ids(t, "x11", NULL, 0, IDS('x', TWO_DIGITS));
    char s[1201]; /* a piece that is too long for the stack */
    for (int i = 0; i < 1200; i += 3) memcpy(s + i, "\xe2\x85\xa0", 3);
    int32_t ids[1200], *want = malloc(sizeof ids);
    size_t n;
    for (int i = 0; i < 1200; i++) want[i] = (unsigned char)s[i];
    assert_ok(tok_encode(t, s, NULL, 1200, 0, ids, 1200, &n));
    assert_int_equal(n, 1200);
    assert_memory_equal(ids, want, sizeof ids);
    free(want);
    tok_close(t);
    tensorfile_close(f);
}

static void spm_merges_by_score(void **state) {
    (void)state;
    check_ids(spm, "ab", NULL, 0, IDS(SPM_SPACE, SPM_AB));
    check_ids(spm, "a", NULL, 0, IDS(SPM__A));
    check_ids(spm, "ba", NULL, 0, IDS(SPM_SPACE, SPM_BA));
    check_ids(spm, "bab", NULL, 0, IDS(SPM_SPACE, SPM_B, SPM_AB));
    check_ids(spm, "abab", NULL, 0, IDS(SPM_SPACE, SPM_ABAB));
    check_ids(spm, " a", NULL, 0, IDS(SPM_SPACE, SPM__A)); /* the better score joins first */
    check_ids(spm, " b", NULL, 0, IDS(SPM_SPACES, SPM_B));
    check_ids(spm, "b a", NULL, 0, IDS(SPM_SPACE, SPM_B, SPM__A));
    check_ids(spm, "\xc3\xbc", NULL, 0, IDS(SPM_SPACE, SPM_UE));
    check_ids(spm, "z\xff", NULL, 0, IDS(SPM_SPACE, 3 + 'z', 3 + 0xff));
    check_ids(spm, "\n", NULL, TOK_ADD, IDS(1, SPM_SPACE, 3 + '\n'));
}

static void refuses(struct vocab_file *v, const char *what);
static uint32_t random_next(void);

static void unigram_takes_the_best_path(void **state) {
    (void)state;
    check_ids(uni, "abc", NULL, 0, IDS(UNI_SPACE, UNI_AB, UNI_C));
    check_ids(uni, "a", NULL, TOK_ADD, IDS(UNI__A, 1));
    check_ids(uni, "A", NULL, 0, IDS(UNI__A));
    check_ids(uni, "  b   A ", NULL, 0, IDS(UNI_SPACE, UNI_B, UNI__A));
    check_ids(uni, "", NULL, 0, NO_IDS);
    check_ids(uni, "  ", NULL, 0, NO_IDS);
    check_ids(uni, "axyza", NULL, 0, IDS(UNI__A, 2, UNI_A)); /* a run of unknown text is one token */
    check_ids(uni,
              "a\xc2\xbd"
              "b",
              NULL, 0, IDS(UNI__A, 2, UNI_B));
    check_ids(uni, "aaaaaaaaaaa", NULL, 0, IDS(UNI__A, UNI_LONG));
    check_ids(uni, "a\xff", NULL, 0, IDS(UNI__A, 2));
    check_ids(uni, "b</s>", NULL, TOK_SPECIAL, IDS(UNI_SPACE, UNI_B, 1));
}

static void wordpiece_takes_the_longest(void **state) {
    (void)state;
    check_ids(wp, "hello", NULL, TOK_ADD, IDS(WP_CLS, WP_HELLO, WP_SEP));
    check_ids(wp, "Hello,  HELLS", NULL, 0, IDS(WP_HELLO, WP_COMMA, WP_HELL, WP_S));
    check_ids(wp, "hellox hello", NULL, 0, IDS(WP_UNK, WP_HELLO));
    check_ids(wp, "\xc3\x89 e\xcc\x81", NULL, 0, IDS(WP_E, WP_E)); /* accents go, in both forms */
    check_ids(wp,
              "e\xe4\xb8\xad"
              "e",
              NULL, 0, IDS(WP_E, WP_HAN, WP_E));
    check_ids(wp, "hel\x01lo", NULL, 0, IDS(WP_HELLO));
    check_ids(wp, "hel\xd8\x80lo \xd8\x85", NULL, 0,
              IDS(WP_HELLO)); /* U+0600, U+0605: Cf, dropped as in BertNormalizer */
    /* U+2581, which marks the start of a word in a GGUF file, is a character like others in a text */
    check_ids(wp, "hello\xe2\x96\x81hello", NULL, 0, IDS(WP_UNK));
    check_ids(wp, "e \xe2\x96\x81 e", NULL, 0, IDS(WP_E, WP_UNK, WP_E));
    check_ids(wp, "\xe2\x96\x81hello", NULL, 0, IDS(WP_UNK));
    check_ids(wp, "[CLS]", NULL, TOK_SPECIAL, IDS(WP_CLS));
    char s[201];
    memset(s, 'e', 200);
    s[200] = 0;
    check_ids(wp, s, NULL, 0, IDS(WP_UNK));
}

static void broken_charsmaps(void **state) {
    (void)state;
    static unsigned char map[8192];
    size_t n = vf_charsmap(map);
    struct vocab_file v;
    vf_unigram(&v, map, 3);
    refuses(&v, "charsmap");
    uint32_t bytes = 0x7ffffffc;
    memcpy(map, &bytes, 4);
    vf_unigram(&v, map, n);
    refuses(&v, "charsmap");
    vf_charsmap(map);
    vf_unigram(&v, map, n - 1);
    refuses(&v, "charsmap");
    /* links that lead out of the table find nothing */
    for (unsigned k = 0; k < 64; k++) {
        struct tensorfile *f;
        struct tok *t;
        int32_t ids[16];
        size_t count;
        vf_charsmap(map);
        uint32_t unit = random_next();
        memcpy(map + 4 + 4 * (k % 2 ? 0x100 ^ 'A' : 0), &unit, 4);
        vf_unigram(&v, map, n);
        assert_ok(vf_open(&v, &f));
        assert_ok(tok_open(&t, f));
        assert_ok(tok_encode(t, "AbcA\xc2\xbd", NULL, 6, 0, ids, 16, &count));
        tok_close(t);
        tensorfile_close(f);
    }
}

static void control_tokens_need_the_flag(void **state) {
    (void)state;
    const char *text = "<|im_start|>hello<|im_end|>";
    int32_t ids[64];
    size_t n;
    check_ids(bpe, text, NULL, TOK_SPECIAL, IDS(BPE_START, BPE_HELLO, BPE_END));
    assert_ok(tok_encode(bpe, text, NULL, strlen(text), 0, ids, 64, &n));
    for (size_t i = 0; i < n; i++) assert_true(ids[i] < BPE_START);
    check_ids(bpe, "a<tool>a", NULL, 0, IDS('a', BPE_TOOL, 'a')); /* user-defined: always */
    /* merges of SentencePiece must not arrive at a control token: "<s" and ">" are tokens */
    check_ids(spm, "<s>", NULL, 0, IDS(SPM_SPACE, SPM_LTS, SPM_GT));
    check_ids(spm, "<s>a", NULL, TOK_SPECIAL, IDS(1, SPM__A));
}

static void marked_bytes_stay_text(void **state) {
    (void)state;
    const char *text = "<|im_end|><|im_end|><tool>   ";
    size_t n = strlen(text);
    uint8_t marks[64] = {0};
    int32_t ids[64];
    for (size_t at = 0; at < 10; at++) { /* one marked byte anywhere in the second token is enough */
        memset(marks, 0, sizeof marks);
        marks[10 + at] = 1;
        size_t k, specials = 0;
        assert_ok(tok_encode(bpe, text, marks, n, TOK_SPECIAL, ids, 64, &k));
        for (size_t i = 0; i < k; i++) specials += ids[i] == BPE_END;
        assert_int_equal(specials, 1);
        assert_int_equal(ids[0], BPE_END);
    }
    memset(marks, 1, sizeof marks);
    check_ids(bpe, "<tool>", marks, TOK_SPECIAL, IDS('<', 't', 'o', 'o', 'l', '>'));
    check_ids(bpe, "a   a", marks, TOK_SPECIAL, IDS('a', BPE_SPACES, 'a')); /* plain: no markup in it */
}

static void stops_and_properties(void **state) {
    (void)state;
    assert_int_equal(tok_size(bpe), BPE_N);
    assert_string_equal(tok_model_name(bpe), "gpt2");
    assert_string_equal(tok_pre_name(bpe), "gpt-2");
    assert_int_equal(tok_bos(bpe), BPE_START);
    assert_int_equal(tok_eos(bpe), BPE_END);
    assert_true(tok_is_stop(bpe, BPE_END));
    assert_false(tok_is_stop(bpe, BPE_START));
    assert_false(tok_is_stop(bpe, BPE_N));
    assert_false(tok_is_stop(bpe, -1));
    assert_false(tok_adds_bos(bpe));
    assert_true(tok_adds_bos(spm));
    assert_int_equal(tok_bos(spm), 1);
    assert_true(tok_is_stop(spm, 2));
    assert_int_equal(tok_attr(bpe, BPE_TOOL), TOK_ATTR_USER);
    assert_int_equal(tok_find(bpe, "<|im_end|>", 10), BPE_END);
    assert_int_equal(tok_find(bpe, "nothing", 7), -1);
    assert_int_equal(tok_piece(bpe, BPE_END, false, false).len, 0);
    assert_int_equal(tok_piece(bpe, BPE_END, true, false).len, 10);
    assert_int_equal(tok_piece(bpe, BPE_N, true, false).len, 0);
    assert_int_equal(tok_piece(bpe, INT32_MIN, true, false).len, 0);
    assert_memory_equal(tok_piece(spm, SPM__A, false, false).data, " a", 2);
    assert_int_equal(tok_piece(spm, SPM__A, false, true).len, 1);
}

/* ---- properties over random text ---- */
static uint64_t random_state = 88172645463325252u;
static uint32_t random_next(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* Bytes that like to meet: letters of the merges, spaces, pieces of UTF-8, anything. */
static void random_text(char *s, size_t n) {
    static const char common[] = "aaabhello   \n\t'sz<|>19";
    for (size_t i = 0; i < n; i++) {
        uint32_t r = random_next();
        s[i] = r % 8 ? common[(r >> 8) % (sizeof common - 1)] : (char)(r >> 16);
        if (r % 31 == 0 && i + 3 <= n) memcpy(s + i, "\xe2\x82\xac", 3), i += 2;
    }
}

static void round_trip(const struct tok *t, const char *s, size_t n) {
    static int32_t ids[4096];
    static char back[8192];
    size_t k, m = 0;
    assert_ok(tok_encode(t, s, NULL, n, 0, ids, 4096, &k));
    for (size_t i = 0; i < k; i++) {
        struct str p = tok_piece(t, ids[i], true, i == 0);
        memcpy(back + m, p.data, p.len);
        m += p.len;
    }
    assert_int_equal(m, n);
    assert_memory_equal(back, s, n);
}

static void decode_undoes_encode(void **state) {
    (void)state;
    char s[1500];
    for (int k = 0; k < 3000; k++) {
        size_t n = random_next() % (k % 100 ? 80 : sizeof s);
        random_text(s, n);
        round_trip(bpe, s, n);
        round_trip(spm, s, n);
    }
}

/* Words on both sides of the short path's limit must come out as the merges say. */
static void long_words(void **state) {
    (void)state;
    enum { N = 100000 };
    char *s = malloc(N);
    int32_t *ids = malloc(N * sizeof *ids);
    memset(s, 'a', N);
    for (size_t n = 1; n <= N; n = n < 90 ? n + 1 : n * 10) {
        size_t k, len = n > N ? N : n;
        assert_ok(tok_encode(bpe, s, NULL, len, 0, ids, N, &k));
        assert_int_equal(k, len / 4 + (len % 4) / 2 + len % 2);
        for (size_t i = 0; i < k; i++)
            assert_int_equal(ids[i], i < len / 4 ? BPE_AAAA : len % 4 >= 2 && i == len / 4 ? BPE_AA : 'a');
    }
    const char *runs[] = {" ", "\n", "1", "!", "'", "\xe2\x82\xac", " a", "\xff"};
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        size_t k, m = strlen(runs[r]);
        for (size_t i = 0; i < N; i++) s[i] = runs[r][i % m];
        assert_ok(tok_encode(bpe, s, NULL, N, 0, ids, N, &k));
        assert_ok(tok_encode(spm, s, NULL, N, 0, ids, N, &k));
        assert_ok(tok_encode(uni, s, NULL, N, 0, ids, N, &k));
        assert_ok(tok_encode(wp, s, NULL, N, 0, ids, N, &k));
    }
    free(s);
    free(ids);
}

/* A long text is encoded with tables of what was seen before, a short one without: word for word they are the same. */
static void long_texts_as_short_ones(void **state) {
    (void)state;
    enum { WORDS = 8, REPEAT = 1000, MAX = WORDS * 12 * REPEAT };
    char *text = malloc(MAX), *end;
    int32_t *ids = malloc(MAX * sizeof *ids), *few = malloc(MAX * sizeof *few);
    for (int round = 0; round < 20; round++) {
        end = text;
        for (int w = 0; w < WORDS; w++) {
            *end++ = ' ';
            for (int c = 1 + rand() % 11; c > 0; c--) *end++ = "abbhelo1z"[rand() % 9];
        }
        size_t unit = (size_t)(end - text), n_few, n_two, n;
        for (int i = 1; i < REPEAT; i++) memcpy(text + unit * (size_t)i, text, unit);
        assert_ok(tok_encode(spm, text, NULL, unit, 0, few, MAX, &n_few));
        assert_ok(tok_encode(spm, text, NULL, 2 * unit, 0, few, MAX, &n_two));
        assert_ok(tok_encode(spm, text, NULL, REPEAT * unit, 0, ids, MAX, &n));
        size_t period = n_two - n_few;
        assert_int_equal(n, n_few + (REPEAT - 1) * period);
        for (size_t i = 0; i < n; i++)
            if (ids[i] != few[i < n_few ? i : n_few + (i - n_few) % period])
                fail_msg("%.*s: id %zu is %d", (int)unit, text, i, ids[i]);
    }
    free(text);
    free(ids);
    free(few);
}

/* Form C orders marks by class and keeps the order within one; a text of nothing but marks must not take time by the square. */
static void marks_in_order(void **state) {
    (void)state;
    static const char marks[] =
        "\xcd\x85\xcc\x81\xcc\x96"; /* U+0345, U+0301, U+0316: classes 240, 230, 220 */
    enum { N = 100000, M = 6 * N + 1 };
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    vf_bpe(&v, "qwen2");
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    check_ids(t, "q\xcc\x81\xcc\x80\xcc\x96", NULL, 0, IDS('q', 0xcc, 0x96, 0xcc, 0x81, 0xcc, 0x80));
    check_ids(t, "\xcc\x81\xcc\x96 e\xcc\x96\xcc\x81", NULL, 0,
              IDS(0xcc, 0x96, 0xcc, 0x81, ' ', 0xc3, 0xa9, 0xcc, 0x96));
    char *s = malloc(M);
    int32_t *ids = malloc(M * sizeof *ids);
    size_t n, wrong = 0;
    s[0] = 'q';
    for (int i = 0; i < 6 * N; i++) s[i + 1] = marks[i % 6];
    assert_ok(tok_encode(t, s, NULL, M, 0, ids, M, &n));
    assert_int_equal(n, M);
    for (int i = 0; i < 6 * N; i++) {
        unsigned char want = (unsigned char)marks[(i / 2 < N ? 4 : i / 2 < 2 * N ? 2 : 0) + i % 2];
        wrong += ids[i + 1] != want;
    }
    assert_int_equal(wrong, 0);
    free(s);
    free(ids);
    tok_close(t);
    tensorfile_close(f);
}

static void counts_beyond_the_room(void **state) {
    (void)state;
    int32_t ids[2] = {-7, -7};
    size_t n;
    assert_ok(tok_encode(bpe, "hzz", NULL, 3, 0, ids, 1, &n));
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 'h');
    assert_int_equal(ids[1], -7);
    assert_ok(tok_encode(bpe, "hzz", NULL, 3, TOK_ADD, NULL, 0, &n));
    assert_int_equal(n, 3);
}

static void stream_never_cuts(void **state) {
    (void)state;
    for (int k = 0; k < 2000; k++) {
        char in[64], out[256];
        size_t n = random_next() % sizeof in, total = 0;
        random_text(in, n);
        struct tok_stream st = {0};
        for (size_t i = 0; i < n;) {
            size_t len = 1 + random_next() % 5;
            if (len > n - i) len = n - i;
            char part[64 + TOK_STREAM_MAX];
            size_t m = tok_stream_push(&st, (struct str){in + i, len}, part);
            memcpy(out + total, part, m);
            total += m;
            i += len;
            /* held back: only what may still become a character */
            assert_true(st.n_held <= 3);
            assert_int_equal(total + (size_t)st.n_held, i);
            if (st.n_held) assert_true(st.held[0] >= 0xc2);
            /* shown text does not end inside a character that the input completes */
            for (size_t b = 1; b <= 3 && b <= total; b++) {
                unsigned char c = (unsigned char)in[total - b];
                size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
                if ((c & 0xc0) == 0x80) continue;
                if (want <= b || c > 0xf4 || total - b + want > n) break;
                char lead[5] = {0};
                memcpy(lead, in + total - b, want);
                if (strcmp(lead, "\xe2\x82\xac") == 0) fail_msg("a character was cut after %zu bytes", b);
                break;
            }
        }
        total += tok_stream_end(&st, out + total);
        assert_int_equal(total, n);
        assert_memory_equal(out, in, n);
    }
}

/* ---- what is broken is refused ---- */
static void refuses(struct vocab_file *v, const char *what) {
    struct tensorfile *f;
    struct tok *t;
    assert_ok(vf_open(v, &f));
    enum infer_status s = tok_open(&t, f);
    assert_true(s == INFER_E_INPUT || s == INFER_E_UNSUPPORTED);
    assert_null(t);
    if (!strstr(err_message(), what)) fail_msg("'%s' is not in: %s", what, err_message());
    tensorfile_close(f);
}

static void broken_vocabularies(void **state) {
    (void)state;
    struct vocab_file v;
    vf_bpe(&v, "no-such-cut");
    refuses(&v, "no-such-cut");
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "hieroglyphs");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 1);
    vf_str(&v, "a");
    refuses(&v, "hieroglyphs");
    vf_spm(&v);
    vf_key_u32(&v, "tokenizer.ggml.bos_token_id", SPM_N);
    refuses(&v, "bos_token_id");
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "llama");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 2);
    vf_str(&v, "a");
    vf_str(&v, "b");
    vf_key_array(&v, "tokenizer.ggml.scores", META_F32, 1);
    vf_u32(&v, 0);
    refuses(&v, "scores");
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "llama");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 1);
    vf_str(&v, "a");
    vf_key_array(&v, "tokenizer.ggml.scores", META_F32, 1);
    vf_u32(&v, 0x7fc00000); /* NaN */
    refuses(&v, "scores");
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "llama");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 1);
    vf_str(&v, "<0x-1>");
    vf_key_array(&v, "tokenizer.ggml.token_type", META_I32, 1);
    vf_u32(&v, 6);
    refuses(&v, "<0xNN>");
    /* ids of a vocabulary that is shorter than SentencePiece's defaults: no such tokens, no error */
    struct tensorfile *f;
    struct tok *t;
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "llama");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 1);
    vf_str(&v, "a");
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    assert_int_equal(tok_bos(t), -1);
    assert_false(tok_adds_bos(t));
    tok_close(t);
    tensorfile_close(f);
    /* no vocabulary at all is not an error */
    vf_begin(&v);
    vf_key_str(&v, "general.architecture", "llama");
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    assert_null(t);
    tensorfile_close(f);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    static char text[3000];
    int32_t ids[3000];
    memset(text, 'a', 1000);
    memset(text + 1000, ' ', 1000);
    random_text(text + 2000, 1000);
    const struct tensorfile *files[] = {bpe_file, spm_file, uni_file, wp_file};
    for (int i = 0; i < 4; i++) {
        struct tok *t = NULL;
        enum infer_status s = INFER_E_MEMORY;
        uint64_t k = 1;
        for (; s != INFER_OK && k < 10000; k++) {
            mem_fail_at(k);
            s = tok_open(&t, files[i]);
            mem_fail_at(0);
            assert_true(s == INFER_OK || (s == INFER_E_MEMORY && !t));
        }
        assert_ok(s);
        assert_true(k > 3);
        s = INFER_E_MEMORY;
        for (k = 1; s != INFER_OK && k < 10000; k++) {
            size_t n;
            mem_fail_at(k);
            s = tok_encode(t, text, NULL, sizeof text, TOK_SPECIAL | TOK_ADD, ids, 3000, &n);
            mem_fail_at(0);
            assert_true(s == INFER_OK || s == INFER_E_MEMORY);
        }
        assert_ok(s);
        tok_close(t);
    }
}

/* ---- threads ---- */
static char shared_text[20000];
static int32_t shared_ids[20000];
static size_t shared_n;

static void *encode_again(void *wrong) {
    int32_t *ids = malloc(sizeof shared_ids);
    for (int k = 0; k < 20; k++) {
        size_t n;
        if (tok_encode(bpe, shared_text, NULL, sizeof shared_text, 0, ids, 20000, &n) || n != shared_n ||
            memcmp(ids, shared_ids, n * sizeof *ids) != 0)
            *(int *)wrong = 1;
    }
    free(ids);
    return NULL;
}

static void threads_agree(void **state) {
    (void)state;
    pthread_t th[4];
    int wrong[4] = {0};
    random_text(shared_text, sizeof shared_text);
    assert_ok(tok_encode(bpe, shared_text, NULL, sizeof shared_text, 0, shared_ids, 20000, &shared_n));
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&th[i], NULL, encode_again, &wrong[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(th[i], NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(wrong[i], 0);
}

/* ---- outside vectors: NAME.gguf, NAME.gguf.inp (texts), NAME.gguf.out (a line of ids a text) ---- */
static char *slurp(const char *name, size_t *n) {
    char path[1024];
    if (!testdata_path(path, sizeof path, name)) return NULL;
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *s = malloc(*n + 1);
    assert_int_equal(fread(s, 1, *n, f), *n);
    s[*n] = 0;
    fclose(f);
    return s;
}

static void vectors_of(const char *name) {
    static const char split[] = "\n__ggml_vocab_test__\n";
    char rel[256], path[1024];
    size_t n_in, n_out;
    struct tensorfile *f;
    struct tok *t;
    snprintf(rel, sizeof rel, "vocab/ggml-vocab-%s.gguf.inp", name);
    char *in = slurp(rel, &n_in);
    snprintf(rel, sizeof rel, "vocab/ggml-vocab-%s.gguf.out", name);
    char *out = slurp(rel, &n_out);
    snprintf(rel, sizeof rel, "vocab/ggml-vocab-%s.gguf", name);
    testdata_path(path, sizeof path, rel);
    struct tensorfile_options o = {.vocab_only = true};
    assert_ok(tensorfile_open(&f, path, &o));
    assert_ok(tok_open(&t, f));
    int cases = 0, wrong = 0;
    char *line = out;
    for (char *s = in, *e; (e = strstr(s, split)); s = e + sizeof split - 1, cases++) {
        int32_t ids[4096];
        size_t k;
        assert_ok(tok_encode(t, s, NULL, (size_t)(e - s), 0, ids, 4096, &k));
        bool same = true;
        size_t i = 0;
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        for (char *p = line, *q; same; p = q, i++) {
            long want = strtol(p, &q, 10);
            if (p == q) break;
            same = i < k && ids[i] == want;
        }
        if (!same || i != k) {
            wrong++;
            print_message("%s: case %d differs: %.*s\n", name, cases, (int)(e - s), s);
        }
        line = end + 1;
    }
    print_message("%s: %d of %d\n", name, cases - wrong, cases);
    assert_int_equal(cases, 46);
    assert_int_equal(wrong, 0);
    tok_close(t);
    tensorfile_close(f);
    free(in);
    free(out);
}

static void outside_vectors(void **state) {
    (void)state;
    char path[1024];
    if (!testdata_path(path, sizeof path, "vocab")) skip();
    static const char *const names[] = {"gpt-2",     "llama-spm",    "phi-3",
                                        "starcoder", "deepseek-llm", "bert-bge"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) vectors_of(names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_in_order),
        cmocka_unit_test(whole_tokens_beat_merges),
        cmocka_unit_test(falcon_cuts_bytes),
        cmocka_unit_test(spm_merges_by_score),
        cmocka_unit_test(unigram_takes_the_best_path),
        cmocka_unit_test(wordpiece_takes_the_longest),
        cmocka_unit_test(broken_charsmaps),
        cmocka_unit_test(control_tokens_need_the_flag),
        cmocka_unit_test(marked_bytes_stay_text),
        cmocka_unit_test(stops_and_properties),
        cmocka_unit_test(decode_undoes_encode),
        cmocka_unit_test(long_words),
        cmocka_unit_test(marks_in_order),
        cmocka_unit_test(long_texts_as_short_ones),
        cmocka_unit_test(counts_beyond_the_room),
        cmocka_unit_test(stream_never_cuts),
        cmocka_unit_test(broken_vocabularies),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(outside_vectors),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
