// When the links of a step ended on the card, for --profile and --trace: behind each a kernel of one thread leaves the card's clock. It lets
// the kernel behind it start early, as the link in front did, so that links overlap as they do without; what it costs is a hand-over
// more between two (docs/decisions.md). Steps are timed seldom enough that this stays below a hundredth of the time.
#pragma once
#include "cuda/run/program.h"

// *out stays NULL without a profile. errors: INFER_E_MEMORY, INFER_E_DEVICE
enum infer_status stamps_open(struct stamps **out, const cuda_backend *b);
void stamps_close(struct stamps *s);

// Whether step f in flight, of that class, is to be timed.
bool stamps_due(struct stamps *s, unsigned f, enum row_class cls);
// Around the launches of step f in flight, which leave times; graph: of the index'th bucket while it is captured, -1: none.
enum infer_status stamps_begin(const cuda_backend *b, unsigned f, int graph, cudaStream_t stream);
void stamps_end(const cuda_backend *b);
// Step f is that bucket's graph.
void stamps_replay(const cuda_backend *b, unsigned f, int graph);
// Behind a link, or n_op operations from the first on that ran by plain kernels; overlap: as their kernels have it. Nothing where the launches
// leave no times.
enum infer_status stamps_link(const cuda_backend *b, const program_link *d, bool overlap,
                              cudaStream_t stream);
enum infer_status stamps_ops(const cuda_backend *b, const struct op_list *l, int first, int n_op, op_queue q);
// Behind a step: its times to the host, and what its links do to the profile; and once it is done, when they ran.
enum infer_status stamps_send(const cuda_backend *b, unsigned f, enum row_class cls, const struct step *s);
void stamps_tell(const cuda_backend *b, unsigned f);

// A range that NVIDIA's tools show, until the block is left; it costs nothing where none looks, or the toolkit had no NVTX.
struct range {
    explicit range(const char *name);
    ~range();
    range(const range &) = delete;
};
