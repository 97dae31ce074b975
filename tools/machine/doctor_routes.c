/* infer doctor --routes: the tables of kernels that matrices and other operations may take, and which group each layout takes on each
 * chip. */
#include "tools/machine/doctor_routes.h"
#include <stdio.h>
#include "cuda/plan/cuda_routes.h"
#include "seam/op_list.h"

/* "f16 bf16 q8", or "all". */
static void print_layouts(FILE *out, unsigned layouts) {
    if (layouts == (1u << LAYOUT_COUNT) - 1) {
        fprintf(out, "all");
        return;
    }
    const char *space = "";
    for (int l = 0; l < LAYOUT_COUNT; l++)
        if (layouts >> l & 1) {
            fprintf(out, "%s%s", space, route_layout_name((enum layout)l));
            space = " ";
        }
}

static const char *const cls[ROW_CLASS_COUNT] = {"prompt", "decode"};
static void chips_of(int least, int most, char *text, size_t n) {
    snprintf(text, n, least == most ? "sm_%d" : "sm_%d..%d", least, most);
}

static void print_others(FILE *out) {
    fprintf(out, "\nkernels of other operations, by link; of those of a class the first that fits\n");
    fprintf(out, "%-7s %-9s %-15s %-10s %-6s %s\n", "rows", "operation", "link", "chips", "head", "kernel");
    for (int k = 0; k < LINK_KIND_COUNT; k++)
        for (const struct link_route *r = link_routes((enum link_kind)k); r->kernel; r++) {
            char sm[24], head[16] = "any";
            chips_of(r->sm_least, r->sm_most, sm, sizeof sm);
            if (r->most_head) snprintf(head, sizeof head, "%d", r->most_head);
            fprintf(out, "%-7s %-9s %-15s %-10s %-6s %s\n", cls[r->cls], op_kind_name(r->op),
                    route_link_name((enum link_kind)k), sm, head, r->kernel);
        }
}

void routes_print(FILE *out) {
    static const int chips[] = {80, 89, 90, 120};
    fprintf(out, "kernels of matrices; those of a group give the same bits, the choice inside it is free "
                 "(--autotune)\n");
    fprintf(out, "%-7s %-14s %-10s %-6s %-34s %s\n", "rows", "group", "chips", "tile", "kernel", "layouts");
    for (int i = 0; i < n_cuda_route; i++) {
        const struct route *r = &cuda_routes[i];
        char sm[24], tile[16] = "any";
        chips_of(r->sm_least, r->sm_most, sm, sizeof sm);
        if (r->tokens) snprintf(tile, sizeof tile, "%d", r->tokens);
        fprintf(out, "%-7s %-14s %-10s %-6s %-34s ", cls[r->cls], route_group_name(r->group), sm, tile,
                r->kernel);
        print_layouts(out, r->layouts);
        fprintf(out, "\n");
    }
    print_others(out);
    fprintf(out, "\nprompt rows take, by layout and chip\n%-7s", "");
    for (int c = 0; c < 4; c++) fprintf(out, " sm_%-11d", chips[c]);
    fprintf(out, " sm_120, mxfp8  sm_90, fp8\n");
    for (int l = 0; l < LAYOUT_COUNT; l++) {
        fprintf(out, "%-7s", route_layout_name((enum layout)l));
        for (int c = 0; c < 6; c++) {
            struct route_case rc = {.sm = c < 4 ? chips[c] : c == 4 ? 120 : 90, .block_scaled = c >= 4};
            fprintf(out, " %-14s", route_group_name(route_prompt_group(&rc, (enum layout)l)));
        }
        fprintf(out, "\n");
    }
}
