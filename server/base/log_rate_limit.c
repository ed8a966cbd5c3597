#include "server/base/log_rate_limit.h"

bool eb_log_rate_limit_allows(struct eb_log_rate_limit *limit, uint64_t now_ms)
{
    if (now_ms - limit->since_ms >= EB_LOG_RATE_LIMIT_MS) {
        limit->since_ms = now_ms;
        limit->lines = 0;
    }
    uint32_t lines_max = limit->lines_max > 0 ? limit->lines_max : EB_LOG_RATE_LIMIT_LINES;
    bool allows = limit->lines < lines_max;
    limit->lines += allows;
    limit->left_out += !allows;
    return allows;
}

uint64_t eb_log_rate_limit_take_left_out(struct eb_log_rate_limit *limit, uint64_t now_ms)
{
    if (now_ms - limit->since_ms < EB_LOG_RATE_LIMIT_MS) {
        return 0;
    }
    uint64_t left_out = limit->left_out;
    limit->left_out = 0;
    return left_out;
}
