// What is done to rows on their way into a matmul beside an RMS norm: a norm with a mean, or an activation.
#pragma once
struct front_job {
    bool norm; // out = (x - mean) / sqrt(var + eps) * w + bias; else out = act(x)
    int act;   // enum act_kind, up to GELU_ERF
    float eps;
    const float *w, *bias; // NULL: 1 and 0
};
