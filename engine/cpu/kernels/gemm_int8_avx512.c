/* Matmuls on panels of weight rows with AVX-512 VNNI. */
#include "cpu/kernels/gemm_int8.h"
#include "cpu/kernels/gemm_codes.h"

#define QUANT_FLOAT(...)
#define QUANT(id, gguf, name, elems, bytes) ROWS_OF(id, 256 / (elems) * (bytes))
#define QUANT_CODES(id, ...)                ROWS_OF_CODES(id)
#include "quant/quant.def"

cpu_row_fn *const cpu_gemm_int8_avx512[QUANT_COUNT] = {
#define QUANT_FLOAT(...)
#define QUANT(id, gguf, name, elems, bytes) [QUANT_##id] = rows_##id,
#include "quant/quant.def"
};
