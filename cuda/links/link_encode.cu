// LINK_ENCODE.
#include "cuda/links/link_encode.h"
#include "cuda/prompt/encode.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

const struct decode_code decode_encode = {};

struct encode_jobs {
    encode_pack_job pack;
    encode_job attend;
    bool mma;
};
static void make_pack(const cuda_backend *b, const struct encode_ops &o, encode_pack_job *p) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct op_attend *a = o.attend;
    p->q = cuda_rows(b, l, a->q);
    p->k = cuda_rows(b, l, a->k);
    p->v = cuda_rows(b, l, a->v);
    p->n_row = &b->t.step->n_row;
    p->n_head = a->n_head;
    p->n_kv_head = a->n_kv_head;
    p->dim = a->q.width / a->n_head;
    p->columns = encode_columns(p->dim);
    p->scale = a->scale * 1.4426950408889634f;
    p->n_turn = o.n_turn;
    for (int i = 0; i < o.n_turn; i++) {
        const struct op_rope *r = o.q[i];
        p->turn[i] = encode_turn{r->x.col - a->q.col, r->rope->n_rot, r->rope->kind == ROPE_NEOX,
                                 cuda_rope_table(b, r->rope)};
    }
    const struct encode_room room = encode_room_of(l->max_rows, p->n_head, p->n_kv_head, p->dim);
    p->to_q = b->work + b->plan.prompt_room;
    p->to_k = p->to_q + room.k;
    p->to_v = p->to_q + room.v;
    p->tiles = room.tiles;
}
static void make_prompt(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct encode_ops o = link_encode_ops(l, &d->is);
    const prompt_tiles out = prompt_output(b, d, ACT_ATTENDED);
    encode_jobs *e = own<encode_jobs>(d);
    encode_pack_job *k = &e->pack;
    make_pack(b, o, k);
    e->attend = encode_job{k->to_q,      k->to_k, k->to_v,   k->n_row,    k->tiles, k->n_head,
                           k->n_kv_head, k->dim,  out.tiles, out.k_tiles, out.order};
    e->mma = link_route(&p->route, LINK_ENCODE, ROW_PROMPT, k->dim)->mma;
}
static enum infer_status run_prompt(const cuda_backend *, const prompt_program *, const prompt_link *d, int n,
                                    cudaStream_t s) {
    const encode_jobs *e = own<encode_jobs>(d);
    CU(encode_pack_launch(e->pack, n, s));
    CU(encode_launch(e->attend, n, e->mma, s));
    return INFER_OK;
}
const struct prompt_code prompt_encode = {make_prompt, run_prompt};
