#include "infer.h"

#ifdef __clang__
#define COMPILER __VERSION__ /* "Clang 14.0.6" */
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifdef INFER_CUDA
#define BACKENDS "cuda " INFER_CUDA_BUILD
#else
#define INFER_CUDA_BUILD ""
#define BACKENDS         "no cuda"
#endif

const char *infer_version(void) { return INFER_VERSION " (" COMPILER ", " BACKENDS ")"; }
const char *infer_cuda_build(void) { return INFER_CUDA_BUILD; }
