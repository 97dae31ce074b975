/* Counters of energy: packages are added up, parts of them are not, a counter may begin again. */
#include "tests/lib/test.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/sense/energy.h"

static char root[] = "/tmp/infer-test-XXXXXX";

static void put(const char *zone, const char *file, const char *text) {
    static const char *const folders[] = {"class", "class/powercap"};
    char path[256];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s/class/powercap/%s", root, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/class/powercap/%s/%s", root, zone, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
static void zone(const char *number, const char *name, const char *uj) {
    put(number, "name", name);
    put(number, "max_energy_range_uj", "10000000\n");
    put(number, "energy_uj", uj);
}

static void packages(void **state) {
    (void)state;
    struct energy *e;
    assert_non_null(mkdtemp(root));
    setenv("INFER_SYSFS", root, 1);
    assert_ok(energy_open(&e)); /* nobody counts */
    assert_true(isnan(energy_now(e).processors) && isnan(energy_of(e, false)));
    energy_close(e);
    zone("intel-rapl:0", "package-0\n", "9000000\n");
    zone("intel-rapl:1", "package-1\n", "1000000\n");
    zone("intel-rapl:0:0", "core\n", "5\n");
    zone("intel-rapl:2", "psys\n", "5\n");
    assert_ok(energy_open(&e));
    assert_true(energy_of(e, false) == 0);
    put("intel-rapl:0", "energy_uj", "2000000\n"); /* behind its range */
    put("intel-rapl:1", "energy_uj", "1500000\n");
    put("intel-rapl:0:0", "energy_uj", "90000000\n");
    put("intel-rapl:2", "energy_uj", "90000000\n");
    assert_true(fabs(energy_of(e, false) - 3.5) < 1e-9);
    put("intel-rapl:1", "energy_uj", "2500000\n");
    assert_true(fabs(energy_of(e, false) - 4.5) < 1e-9);
    energy_close(e);
}

/* What may be taken begins with the pace; the counter does not move, so that nobody waits; with less than it took somebody does. */
static void pace(void **state) {
    (void)state;
    struct energy_pace *p;
    assert_ok(energy_pace_open(&p, 1000, false));
    assert_true(energy_pace_wait(p));
    put("intel-rapl:1", "energy_uj", "9500000\n"); /* 7 J: 7 ms of 1000 W */
    assert_true(energy_pace_wait(p));
    energy_pace_close(p);
    assert_ok(energy_pace_open(&p, 0.001, false));
    put("intel-rapl:1", "energy_uj", "9900000\n");
    assert_false(energy_pace_wait(p)); /* 400 s */
    assert_true(energy_pace_wait(p));  /* it is not asked for now */
    energy_pace_close(p);
    setenv("INFER_SYSFS", "/none", 1);
    assert_int_equal(energy_pace_open(&p, 1, false), INFER_E_UNSUPPORTED);
    assert_null(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(packages), cmocka_unit_test(pace)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) != 0 || failed;
}
