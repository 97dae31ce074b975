/* What sentence-transformers puts beside a model: modules.json, and a folder of each module behind the transformer. */
#pragma once
#include "base/mem.h"
#include "base/status.h"

enum { SENTENCE_DENSE = 2 };
struct hf_sentence {
    bool there;
    int pooling;     /* by GGUF's numbers; -1: no module says it */
    uint32_t n_text; /* tokens of a text, at most; 0: no file says it */
    const char
        *dense[SENTENCE_DENSE]; /* dense[n_dense]: folders of products behind the pooling, in their order */
    int n_dense;
};
/* Of a folder. errors: INFER_E_INPUT, INFER_E_UNSUPPORTED (a module or a way of pooling that is not here), naming the file */
enum infer_status hf_sentence_read(struct hf_sentence *s, const char *folder, struct arena *arena);
