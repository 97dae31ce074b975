/* The long parts of a tokenizer.json, model.vocab and model.merges, read without a tree of JSON values.
 *
 * Such a file has hundreds of thousands of strings; jansson makes an object or two of each, with a map over their names.
 * Here they go one after the other into a list, and the rest of the file, some kilobytes, is left to jansson. */
#pragma once
#include <jansson.h>
#include "base/mem.h"
#include "files/tensorfile.h"

/* {"text": id, ..}, [["text", score], ..], ["a b", ..] or [["a", "b"], ..], which is written as "a b" */
struct tok_entry {
    struct str text; /* in the arena, not ended by 0 */
    union {
        int64_t id;
        double score;
    };
};
struct tok_chunk {
    struct tok_chunk *next;
    int n, cap;
    struct tok_entry entry[]; /* entry[n], room for cap */
};
struct tok_list {
    enum tok_list_form { TOK_LIST_NONE, TOK_LIST_IDS, TOK_LIST_SCORES, TOK_LIST_PAIRS } form;
    struct tok_chunk *first, *last;
    size_t n;
};
/* Bytes from .. to of the file. */
struct tok_cut {
    size_t from, to;
};
struct tok_scan {
    struct tok_list vocab, merges; /* form TOK_LIST_NONE: there is none, or nothing that is read here */
    struct tok_cut cut[2];         /* cut[n_cut]: where they stand */
    int n_cut;
};

/* Reads both from json[n]. What is no JSON elsewhere is not seen: reading the rest shows it.
 * errors: INFER_E_INPUT (names the line and the entry), INFER_E_UNSUPPORTED (a merge with a space), INFER_E_MEMORY */
enum infer_status tok_scan(struct tok_scan *s, struct arena *a, const char *json, size_t n);
/* The rest as a tree, null where the lists were. errors: INFER_E_INPUT (names the line), INFER_E_MEMORY */
enum infer_status tok_scan_rest(json_t **out, const struct tok_scan *s, const char *json, size_t n);
