#include "infer_request.h"
#include "text/sample/sample.h"

struct infer_request_params infer_request_defaults(void) {
    return (struct infer_request_params){
        .seq = -1, .sample = infer_sample_defaults(), .end_id = -1, .n_predict = -1, .n_logprob = -1};
}

void infer_request_prompt(struct infer_request_params *p, const struct infer_prompt *prompt, bool chat) {
    p->ids = prompt->ids, p->n_id = prompt->n;
    p->rows = prompt->rows, p->n_rows = prompt->n_rows;
    p->first = chat;
    if (!chat)
        p->start = INFER_ANSWER_PLAIN;
    else if (infer_prompt_closing(prompt->text, prompt->n_text))
        p->start = INFER_ANSWER_THINKING;
    else
        p->start = INFER_ANSWER_MAYBE;
}

bool infer_request_is_greedy(const struct infer_request_params *p) {
    return sample_is_greedy(&p->sample) && !p->constraint && p->n_logprob < 0;
}
