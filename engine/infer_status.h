/* What a function of infer.h returns; infer_error() has the message. The exit codes are those of the program. */
#pragma once

enum infer_status {
    INFER_OK = 0,
    INFER_E_INPUT,       /* bad file, flag, request or model: exit code 2 */
    INFER_E_UNSUPPORTED, /* well-formed, but not something this build runs: exit code 2 */
    INFER_E_MEMORY,      /* out of memory, or the plan does not fit: exit code 1 */
    INFER_E_DEVICE,      /* no such device, driver fault, device lost: exit code 1 */
    INFER_E_FULL,        /* context or slots full: exit code 1 */
    INFER_E_IO,          /* a file cannot be opened or read: exit code 2 */
    INFER_E_CANCEL,      /* infer_cancel() was called: exit code 130 */
    INFER_E_NAN,         /* the NaN guard found a value that is not finite: exit code 1 */
    INFER_E_WRITE,       /* an output has no room or does not reach its disk: exit code 1 */
};
