/* Parses bytes as a server's metrics, as embag split does. What is counted must be finite and not
 * negative, and tables that are not counted have nothing. */
#include "client/cli/split_metrics.h"

#include "tests/fuzz/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_split_table tables[] = {{.name = "t00"}, {.name = "a\"\\\n"}};
    struct eb_split_plan plan = {.parts = 4, .count = 2, .tables = tables};
    struct eb_failure failure = {.text = ""};
    char *text = malloc(size + 1);
    if (!text || !eb_split_plan_index(&plan, &failure)) {
        abort();
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (eb_split_metrics_parse(&plan, text, size, "dlrm", &failure)) {
        require(tables[0].is_counted || tables[1].is_counted);
        for (size_t i = 0; i < plan.count; i++) {
            require(isfinite(tables[i].rows_touched) && tables[i].rows_touched >= 0);
            require(isfinite(tables[i].bags) && tables[i].bags >= 0);
            require(tables[i].is_counted || tables[i].rows_touched + tables[i].bags == 0);
        }
    } else {
        require(failure.text[0] != '\0');
    }
    free(text);
    eb_split_plan_deinit(&plan);
    return 0;
}
