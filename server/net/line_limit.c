#include "server/net/line_limit.h"

bool eb_line_limit_allows(struct eb_line_limit *limit, uint64_t now_ms)
{
    if (now_ms - limit->since_ms >= EB_LINE_LIMIT_MS) {
        limit->since_ms = now_ms;
        limit->lines = 0;
    }
    const bool allows = limit->lines < EB_LINE_LIMIT_LINES;
    limit->lines += allows;
    limit->left_out += !allows;
    return allows;
}

uint64_t eb_line_limit_take_left_out(struct eb_line_limit *limit, uint64_t now_ms)
{
    if (now_ms - limit->since_ms < EB_LINE_LIMIT_MS) {
        return 0;
    }
    const uint64_t left_out = limit->left_out;
    limit->left_out = 0;
    return left_out;
}
