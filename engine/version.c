#include "infer.h"

#ifdef __clang__
#define COMPILER __VERSION__ /* "Clang 14.0.6" */
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifdef INFER_CUDA
#define BACKENDS "cpu, cuda"
#else
#define BACKENDS "cpu"
#endif

const char *infer_version(void) { return INFER_VERSION " (" COMPILER "; " BACKENDS ")"; }
