#include "tests/lib/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

void eb_capture_start(struct eb_capture *capture, int descriptor)
{
    capture->descriptor = descriptor;
    capture->file = memfd_create("capture", MFD_CLOEXEC);
    capture->before = dup(descriptor);
    assert_true(capture->file >= 0 && capture->before >= 0);
    assert_true(dup2(capture->file, descriptor) >= 0);
}

void eb_capture_stop(struct eb_capture *capture, char *out, size_t out_bytes)
{
    assert_true(dup2(capture->before, capture->descriptor) >= 0);
    close(capture->before);
    ssize_t got = pread(capture->file, out, out_bytes, 0);
    close(capture->file);
    assert_true(got >= 0 && (size_t)got < out_bytes);
    out[got] = '\0';
}
