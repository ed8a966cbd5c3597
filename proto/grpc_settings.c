#include "proto/grpc_settings.h"

#include "proto/grpc_text.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>

#define WINDOW_BYTES_MIN 65535u /* what HTTP/2 begins with */
#define REQUEST_BYTES_LIMIT (512u * 1024 * 1024)
/* DATA frames are passed on as they arrive, so that large ones cost no memory. */
#define FRAME_BYTES_MAX (256u * 1024)
/* HTTP/2 counts so much beside each field's texts. */
#define HEADER_FIELD_OVERHEAD 32u
/* nghttp2's own limiter of resets is set out of the way of ours. */
#define RESETS_UNLIMITED 1000000000u
#define EXTENSION_TYPE_FIRST 10u
#define EXTENSION_TYPE_LAST 255u

nghttp2_option *eb_grpc_settings_option(void)
{
    nghttp2_option *option = NULL;
    if (nghttp2_option_new(&option) != 0) {
        return NULL;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, RESETS_UNLIMITED, RESETS_UNLIMITED);
    for (unsigned type = EXTENSION_TYPE_FIRST; type <= EXTENSION_TYPE_LAST; type++) {
        nghttp2_option_set_user_recv_extension_type(option, (uint8_t)type);
    }
    return option;
}

/* Windows hold the largest message twice: nghttp2 tells the peer of credit once half a window has
 * come together, and what is left until then must do for a whole message. */
bool eb_grpc_settings_submit(nghttp2_session *session, const struct eb_grpc_server_limits *limits)
{
    assert(limits->request_bytes_max <= REQUEST_BYTES_LIMIT);
    uint32_t window = 2 * (limits->request_bytes_max + EB_GRPC_PREFIX_BYTES);
    if (window < WINDOW_BYTES_MIN) {
        window = WINDOW_BYTES_MIN;
    }
    const nghttp2_settings_entry entries[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->streams_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
            limits->header_bytes_max + limits->header_fields_max * HEADER_FIELD_OVERHEAD},
    };
    return nghttp2_submit_settings(
               session, NGHTTP2_FLAG_NONE, entries, sizeof entries / sizeof entries[0]) == 0 &&
           nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, (int32_t)window) ==
               0;
}
