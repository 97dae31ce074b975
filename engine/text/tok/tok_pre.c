/* Pre-tokenizers: the patterns that cut text into the pieces inside which BPE merges.
 *
 * A row of the table is what a model family's tokenizer.json says, in order: each pattern cuts every piece
 * that the patterns before it left, and both what it matches and what lies between are pieces. The names are
 * those of tokenizer.ggml.pre in GGUF files. sources: the tokenizer.json files that the families publish
 * (pre_tokenizer section); the list of names is in the GGUF converters' model registry. */
#include "text/tok/tok_impl.h"

/* GPT-4's pattern (cl100k) with digits taken three, one, or all at a time */
#define CL100K(digits)                                                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* GPT-4o's (o200k): words cut where lower case turns to upper */
#define O200K_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(suffix, digits)                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "*" O200K_LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER    \
    "+" O200K_LOWER "*" suffix "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
/* DeepSeek: the cased letters it lists, its punctuation and its ideographs */
#define DEEPSEEK_LETTERS                                                                                     \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"          \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"   \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"          \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"        \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"        \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}"                   \
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"                  \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"        \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"          \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"                   \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"                   \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"         \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"        \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"                       \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"                   \
    "\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_PUNCTUATION                                                                                 \
    "!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}"
#define DEEPSEEK_IDEOGRAPHS "\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}"
/* "\s+$" of the family, written so that it cannot start inside a run: one try a run instead of one a
 * character */
#define SPACE_AT_END "(?<!\\s)\\s++\\z"

/* Not in front of a word character as Oniguruma's \b sees them: letters, marks, digits, connectors */
#define WORD_ENDS                                                                                            \
    "(?![\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}\\x{1F130}" \
    "-\\x{1F149}"                                                                                            \
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}])"
/* Kimi K2: o200k without the ideographs, which are runs of their own */
#define NOT_HAN(set) "(?:(?!\\p{sc:Han})" set ")"
#define KIMI_WORD(upper, lower)                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(O200K_UPPER) upper NOT_HAN(O200K_LOWER)                                 \
    lower CONTRACTION
/* DeepSeek V3: ASCII punctuation that opens a word goes with it */
#define DEEPSEEK3(tail)                                                                                      \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"      \
    "| ?[\\p{P}\\p{S}]+" tail "|\\s+(?!\\S)|\\s+"
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
/* BLOOM: words, the punctuation it lists left between them */
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

static const struct tok_pre_row rows[] = {
    {.names = "gpt-2 gpt2 phi-2 jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert "
              "jina-es jina-de jina-v2-es jina-v2-de ",
     .pattern = {TOK_PATTERN_GPT2}},
    {.names = "gpt-neox olmo mpt dolly ", .pattern = {TOK_PATTERN_GPT2}, .nfc = true},
    {.names = "roberta-bpe jina-v1-en jina-v2-code ", .pattern = {TOK_PATTERN_GPT2}, .add_eos = true},
    {.names = "starcoder refact smollm codeshell exaone minerva-7b mellum2 ",
     .pattern = {"\\p{N}", TOK_PATTERN_GPT2}},
    {.names = "command-r ", .pattern = {"\\p{N}", TOK_PATTERN_GPT2}, .nfc = true},
    {.names = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     .pattern = {CL100K("\\p{N}{1,3}")},
     .ignore_merges = true,
     .add_bos = true},
    {.names = "dbrx smaug-bpe glm4 glm5 chatglm-bpe ", .pattern = {CL100K("\\p{N}{1,3}")}},
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez ", .pattern = {CL100K("\\p{N}")}, .nfc = true},
    {.names = "stablelm2 hunyuan solar-open grok-2 ", .pattern = {CL100K("\\p{N}")}},
    {.names = "qwen35 ",
     .pattern = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     .nfc = true},
    {.names = "minicpm5 ", .pattern = {"\\p{N}{1,3}", CL100K("\\p{N}+")}, .ignore_merges = true},
    {.names = "laguna ", .pattern = {"[^\\n]+|[\\n]+", CL100K("\\p{N}")}},
    {.names = "ufakzeka ",
     .pattern = {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                 "|\\s+(?!\\S)|\\s+"}},
    {.names = "seed-coder ",
     .pattern =
         {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.names = "bailingmoe bailingmoe2 llada-moe ",
     .pattern = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
                 "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "exaone-moe ",
     .pattern = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: "
                 "\\p{L}\\p{M}*+)*+)++|\\p{N}"
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "jais-2 ",
     .pattern =
         {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)"
          "|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{"
          "1}"}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2 ", .pattern = {O200K(CONTRACTION, "\\p{N}{1,3}")}},
    {.names = "granite-embed-multi-97m ",
     .pattern = {O200K(CONTRACTION, "\\p{N}{1,3}")},
     .ignore_merges = true},
    {.names = "tekken ", .pattern = {O200K("", "\\p{N}")}, .ignore_merges = true, .add_bos = true},
    {.names = "tiny_aya cohere2moe ",
     .pattern = {"\\d++" WORD_ENDS, O200K(CONTRACTION, "\\p{N}{1,3}")},
     .group3 = true},
    {.names = "youtu ",
     .pattern =
         {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}"
          "\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+"
          "|[\\x{3105}-\\x{312F}]+|" CJK,
          O200K(CONTRACTION, "\\p{N}")},
     .ignore_merges = true},
    {.names = "kimi-k2 ",
     .pattern = {"\\p{sc:Han}+|" KIMI_WORD("*", "+") "|" KIMI_WORD(
         "+", "*") "|\\p{N}{1,3}"
                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.names = "deepseek-llm ",
     .pattern = {"[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+", "\\s?[" DEEPSEEK_PUNCTUATION "]+", SPACE_AT_END,
                 "[" DEEPSEEK_IDEOGRAPHS "]+", "\\p{N}"}},
    {.names = "deepseek-coder ",
     .pattern = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[" DEEPSEEK_IDEOGRAPHS "]+", "\\p{N}"}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
     .pattern = {"\\p{N}{1,3}", CJK, DEEPSEEK3("[\\r\\n]*|\\s*[\\r\\n]+")}},
    {.names = "spark2_5 ", .pattern = {"\\p{N}{1,3}", CJK, DEEPSEEK3("|[\\r\\n]"), "\\p{N}"}},
    {.names = "afmoe ",
     .pattern =
         {"\\d++",
          "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
          "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}"
          "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}"
          "\\x{1100}-\\x{11FF}]+",
          DEEPSEEK3("[\\r\\n]*|\\s*[\\r\\n]+")},
     .group3 = true},
    {.names = "falcon ",
     .pattern = {"[\\p{P}$+<=>^~|`]+", TOK_PATTERN_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
     .n_mapped = 2},
    {.names = "poro-chat bloom gpt3-finnish ", .pattern = {BLOOM}},
    {.names = "viking ", .pattern = {BLOOM, "\\p{N}"}},
    {.names = "chameleon ",
     .pattern = {"<sentinel:[0-9]+>", "(?:IMGIMG)[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
                 "[\\p{P}!-/:-@\\[-`{-~]", TOK_PATTERN_GPT2},
     .add_bos = true},
    {.names = "superbpe ", .pattern = {"\\p{N}+"}, .group3 = true},
    {.names = "gemma4 granite-embed-multi-311m sarvam-moe ",
     .pattern = {"[^\\n]+|[\\n]+"},
     .escape_space = true},
    /* a file without a name: four cuts that hold for most early files */
    {.names = "default ", .pattern = {"[\\p{P}$+<=>^~|]+", TOK_PATTERN_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

const struct tok_pre_row *tok_pre_find(const char *name, size_t n) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (const char *s = rows[r].names; *s;) {
            const char *end = strchr(s, ' ');
            if ((size_t)(end - s) == n && memcmp(s, name, n) == 0) return &rows[r];
            s = end + 1;
        }
    return NULL;
}

/* ---- compiling ---- */
static void *pcre_alloc(size_t n, void *user) {
    (void)user;
    return mem_alloc(n);
}
static void pcre_free(void *p, void *user) {
    (void)user;
    mem_free(p);
}

/* White space as Oniguruma's \s has it, for inside a class: PCRE2's own also takes U+180E. */
#define WHITE                                                                                                \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* \p{Han}: Oniguruma means the script, PCRE2 the script with its extensions. */
static bool names_script(const char *s) {
    static const char *const scripts[] = {"Han}",   "Hiragana}", "Katakana}", "Hangul}",
                                          "Latin}", "Cyrillic}", "Arabic}",   "Greek}",
                                          "Thai}",  "Hebrew}",   "Bopomofo}"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strncmp(s, scripts[i], strlen(scripts[i])) == 0) return true;
    return false;
}

/* Writes pattern with \s, \S and names of scripts spelled out; dst NULL counts. */
static size_t spell_white(char *dst, const char *pattern) {
    size_t o = 0;
    bool in_class = false;
    for (const char *s = pattern; *s; s++) {
        const char *put = NULL;
        size_t len = 1;
        if (*s == '\\' && s[1]) {
            if (s[1] == 's') put = in_class ? WHITE : "[" WHITE "]";
            if (s[1] == 'S' && !in_class) put = "[^" WHITE "]";
            len = 2;
            if ((s[1] == 'p' || s[1] == 'P') && s[2] == '{' && names_script(s + 3)) {
                put = s[1] == 'p' ? "\\p{sc:" : "\\P{sc:";
                len = 3;
            }
        } else if (!in_class && *s == '[') {
            in_class = true; /* a first ']' is a member: "[]", "[^]" */
            len += s[1] == '^';
            len += s[len] == ']';
        } else if (in_class && *s == ']') {
            in_class = false;
        }
        size_t n = put ? strlen(put) : len;
        if (dst) memcpy(dst + o, put ? put : s, n);
        o += n;
        s += len - 1;
    }
    return o;
}

static enum infer_status compile_one(pcre2_code **out, const char *pattern, pcre2_compile_context *cc) {
    char *spelled;
    size_t n = spell_white(NULL, pattern);
    TRY(mem_new(&spelled, n + 1, "a pre-tokenizer pattern"));
    spell_white(spelled, pattern);
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)spelled, n, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at,
                         cc);
    mem_free(spelled);
    if (!*out) {
        if (code == PCRE2_ERROR_NOMEMORY || code == 121)
            return err_set(INFER_E_MEMORY, "out of memory: compiling a pre-tokenizer pattern");
        char why[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(INFER_E_UNSUPPORTED, "pre-tokenizer pattern, character %zu: %s", (size_t)at, why);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it the interpreter matches the same */
    return INFER_OK;
}

enum infer_status tok_pre_compile(struct tok_pre *pre, const char *const *pattern) {
    pcre2_general_context *gc = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *cc = gc ? pcre2_compile_context_create(gc) : NULL;
    enum infer_status st = INFER_OK;
    if (!cc) st = err_set(INFER_E_MEMORY, "out of memory: compiling a pre-tokenizer");
    for (int i = 0; st == INFER_OK && i < TOK_PRE_MAX && pattern[i]; i++) {
        st = compile_one(&pre->code[i], pattern[i], cc);
        if (pre->code[i]) pre->n = i + 1;
    }
    pcre2_compile_context_free(cc);
    pcre2_general_context_free(gc);
    return st;
}

enum infer_status tok_pre_compile_keys(struct tok_pre *pre, const struct meta *patterns,
                                       const struct meta *modes, size_t n_mapped) {
    const char *pattern[TOK_PRE_MAX] = {NULL};
    struct arena a = {0};
    if (patterns->type != META_ARRAY || (patterns->elem != META_STRING && patterns->n) ||
        patterns->n > TOK_PRE_MAX)
        return err_set(INFER_E_INPUT, "tokenizer.infer.patterns is not an array of at most %d strings",
                       TOK_PRE_MAX);
    if (!modes || modes->type != META_ARRAY || modes->n != patterns->n ||
        (modes->elem != META_U8 && modes->n))
        return err_set(INFER_E_INPUT, "tokenizer.infer.modes is not an array of %llu bytes",
                       (unsigned long long)patterns->n);
    if (n_mapped > patterns->n)
        return err_set(INFER_E_INPUT, "tokenizer.infer.patterns_mapped is %zu, there are %llu patterns",
                       n_mapped, (unsigned long long)patterns->n);
    pre->n_mapped = (int)n_mapped;
    enum infer_status st = INFER_OK;
    for (size_t i = 0; i < patterns->n; i++) {
        pattern[i] = arena_strndup(&a, patterns->strings[i].data, patterns->strings[i].len);
        if (!pattern[i]) st = err_set(INFER_E_MEMORY, "out of memory: a pre-tokenizer pattern");
        pre->mode[i] = (uint8_t)meta_elem_i64(modes, i);
    }
    if (st == INFER_OK) st = tok_pre_compile(pre, pattern);
    arena_free(&a);
    return st;
}

void tok_pre_free(struct tok_pre *pre) {
    for (int i = 0; i < pre->n; i++) pcre2_code_free(pre->code[i]);
    *pre = (struct tok_pre){0};
}

/* ---- cutting ---- */
static enum infer_status split_from(struct tok_work *w, int level, const char *s, size_t n,
                                    tok_word_fn *encode);
static enum infer_status split_at(struct tok_work *w, int level, const char *s, size_t n,
                                  tok_word_fn *encode);

/* A run of digits in groups of three, counted from its end. */
static enum infer_status split_groups(struct tok_work *w, int level, const char *s, size_t n,
                                      tok_word_fn *encode) {
    size_t digits = 0, at = 0, i = 0;
    for (size_t k = 0; k < n; k++) digits += (s[k] & 0xc0) != 0x80;
    for (size_t left = digits; left; left--) {
        if (i > at && left % 3 == 0) {
            TRY(split_from(w, level, s + at, i - at, encode));
            at = i;
        }
        i += text_utf8_len(s + i, n - i);
    }
    return split_from(w, level, s + at, n - at, encode);
}

/* The next match in s[n] from byte from on; *found false: none. */
static enum infer_status next_match(struct tok_work *w, int level, const char *s, size_t n, size_t from,
                                    bool *found) {
    const pcre2_code *code = w->t->pre.code[level];
    int rc = pcre2_match(code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, w->match, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* nested repeats over a long run: the interpreter uses the heap */
        rc = pcre2_match(code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, NULL);
    *found = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return INFER_OK;
    char why[128];
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
    return err_set(INFER_E_MEMORY, "pre-tokenizer: %s", why);
}

enum { MAPPED_SHORT = 256 }; /* bytes of a piece that is mapped on the stack */

/* One of the patterns that read the byte alphabet goes over s[n], text as yet. */
static enum infer_status split_mapped(struct tok_work *w, int level, const char *s, size_t n,
                                      tok_word_fn *encode) {
    char room[2 * MAPPED_SHORT], *mapped = room;
    if (n > MAPPED_SHORT) TRY(mem_new(&mapped, 2 * n, "a piece in the byte alphabet"));
    enum infer_status st = split_at(w, level, mapped, tok_bpe_map(w->t, mapped, s, n), encode);
    if (mapped != room) mem_free(mapped);
    return st;
}

/* Ids of a piece; mapped: it is written in the byte alphabet. */
static enum infer_status encode_piece(struct tok_work *w, const char *s, size_t n, bool mapped,
                                      tok_word_fn *encode) {
    char room[MAPPED_SHORT], *bytes = room;
    if (!mapped) return tok_word_cached(w, s, n, encode);
    if (n > MAPPED_SHORT) TRY(mem_new(&bytes, n, "a piece of bytes"));
    enum infer_status st = tok_word_cached(w, bytes, tok_bpe_unmap(w->t, bytes, s, n), encode);
    if (bytes != room) mem_free(bytes);
    return st;
}

static enum infer_status split_from(struct tok_work *w, int level, const char *s, size_t n,
                                    tok_word_fn *encode) {
    const struct tok_pre *pre = &w->t->pre;
    if (n == 0) return INFER_OK;
    if (level == pre->n) return encode_piece(w, s, n, pre->n_mapped > 0, encode);
    if (pre->n_mapped && level == pre->n - pre->n_mapped) return split_mapped(w, level, s, n, encode);
    return split_at(w, level, s, n, encode);
}

/* Cuts s[n] by the pattern of this level, and what comes of it by those behind. */
static enum infer_status split_at(struct tok_work *w, int level, const char *s, size_t n,
                                  tok_word_fn *encode) {
    const struct tok_pre *pre = &w->t->pre;
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(w->match);
    uint8_t mode = pre->mode[level];
    size_t at = 0; /* up to here the text is cut */
    for (size_t from = 0; at < n && from < n;) {
        bool found;
        TRY(next_match(w, level, s, n, from, &found));
        if (!found) break;
        size_t start = span[0], end = span[1];
        if (end <= start || start < at) { /* an empty match cuts nothing: go on behind the next character */
            from = start < from ? from : start;
            from += from < n ? text_utf8_len(s + from, n - from) : 1;
            continue;
        }
        if (mode == TOK_SPLIT_PREVIOUS) start = end;
        if (mode != TOK_SPLIT_KEEP) TRY(split_from(w, level + 1, s + at, start - at, encode));
        from = end;
        at = mode == TOK_SPLIT_NEXT ? start : end;
        if (mode != TOK_SPLIT_ISOLATED && mode != TOK_SPLIT_KEEP) continue;
        if (level == 0 && w->t->group3) {
            TRY(split_groups(w, 1, s + start, end - start, encode));
        } else {
            TRY(split_from(w, level + 1, s + start, end - start, encode));
        }
    }
    return mode == TOK_SPLIT_KEEP ? INFER_OK : split_from(w, level + 1, s + at, n - at, encode);
}

enum infer_status tok_pre_split(struct tok_work *w, const char *s, size_t n, tok_word_fn *encode) {
    if (!w->match) {
        pcre2_general_context *gc = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
        if (gc) w->match = pcre2_match_data_create(1, gc);
        pcre2_general_context_free(gc);
        if (!w->match) return err_set(INFER_E_MEMORY, "out of memory: the pre-tokenizer's match data");
    }
    return split_from(w, 0, s, n, encode);
}
