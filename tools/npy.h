/* NumPy files. */
#pragma once
#include "files/outfile.h"

/* The header of a float32 array [rows][columns], little endian, C order; its data follow. source: NumPy's npy format 1.0 */
enum infer_status npy_header(struct outfile *out, int rows, int columns);
