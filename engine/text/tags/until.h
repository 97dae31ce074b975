/* Free text up to one of several texts. */
#pragma once
#include "base/mem.h"
#include "text/grammar/grammar_text.h"

enum { UNTIL_TEXTS = 256, UNTIL_PLACES = 4096 };
/* text[k], n[k] > 0 bytes of UTF-8, is followed by the GBNF then[k] (NULL: it must not come). Where two end at once, the longer one counts;
 * of one that begins with another, the shorter. */
struct until {
    int n_text;
    const char *text[UNTIL_TEXTS];
    const char *then[UNTIL_TEXTS];
};
/* Writes rules name-0 (where it begins), name-1, ..: text without any of them, and one of them with what follows. open: the text may end
 * before one comes. errors: INFER_E_INPUT (places), INFER_E_MEMORY */
enum infer_status until_rules(struct stext *t, const char *name, const struct until *u, bool open);
