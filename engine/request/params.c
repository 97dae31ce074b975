#include "infer_request.h"
#include "text/sample/sample.h"

struct infer_request_params infer_request_defaults(void) {
    return (struct infer_request_params){
        .sample = infer_sample_defaults(), .end_id = -1, .n_predict = -1, .n_logprob = -1};
}

bool infer_request_is_greedy(const struct infer_request_params *p) {
    return sample_is_greedy(&p->sample) && !p->constraint && p->n_logprob < 0;
}
