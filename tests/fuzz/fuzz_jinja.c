/* Any bytes as a chat template, and as its variables: what comes out is a text or an error with a message. The input is
 * the template, a 0 byte, and JSON; without the 0 a conversation stands in. */
#include "text/chat_template.h"
#include "files/json.h"
#include <string.h>

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"be <b>brief\"}, "
                                   "{\"role\": \"user\", \"content\": \"\\u00dfU \\ud83d\\ude00 x\"},"
                                   "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": "
                                   "\"a\"}], \"tool_calls\": [{\"function\": {\"name\": \"f\","
                                   "\"arguments\": {\"k\": [1, 2.5, null, true]}}}]}], \"tools\": "
                                   "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}],"
                                   "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": "
                                   "\"</s>\", \"now\": \"2026-02-07T08:05:09\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int ready;
    if (!ready) json_use_mem();
    ready = 1;
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    const char *json = zero ? (const char *)zero + 1 : conversation;
    size_t n_json = zero ? size - n - 1 : sizeof conversation - 1;
    struct chat_text t = {0};
    json_t *vars = NULL;
    enum infer_status st = json_read(&vars, "template input", json, n_json, JSON_ALLOW_NUL);
    if (!st) st = chat_render(&t, (const char *)data, n, vars);
    json_decref(vars);
    if (st == INFER_OK) {
        if (strlen(t.text) > t.n || t.text[t.n] != 0) __builtin_trap();
        volatile unsigned sum = 0;
        for (size_t i = 0; i < t.n; i++) sum += t.marks[i];
        (void)sum; /* every mark is there to be read */
        chat_text_free(&t);
    } else if (st != INFER_E_INPUT || err_message()[0] == 0 || t.text) {
        __builtin_trap();
    }
    return 0;
}
