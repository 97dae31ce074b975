#include "request/params.h"

struct request_params request_defaults(void) {
    return (struct request_params){
        .sample = sample_defaults(), .end_id = -1, .n_predict = -1, .n_logprob = -1};
}

bool request_is_greedy(const struct request_params *p) {
    return sample_is_greedy(&p->sample) && !p->constraint && p->n_logprob < 0;
}
