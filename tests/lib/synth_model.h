/* Models of random weights, for tests that synth is linked with. */
#pragma once
#include "tests/lib/test.h"
#include "infer.h"
#include "tools/file/synth.h"

#include <unistd.h>

enum { SYNTH_PATH = 32 };

/* Writes the model of o to a temporary file, whose name is put in path; the caller unlinks it. */
static inline void synth_temporary(const struct synth_options *o, char path[SYNTH_PATH]) {
    struct synth_options here = *o;
    struct synth_report report;
    strcpy(path, "/tmp/infer-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    here.path = path;
    assert_ok(synth_write(&here, &report));
}

/* The same, opened; its file is gone, the map stays. */
static inline struct infer_model *synth_model(const struct synth_options *o) {
    char path[SYNTH_PATH];
    struct infer_model *m;
    synth_temporary(o, path);
    assert_ok(infer_model_open(&m, path, NULL));
    unlink(path);
    return m;
}
