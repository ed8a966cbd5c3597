/* The answers to a client's calls: how the dispatcher has them decoded, checked and dropped.
 * Thread: the loop's. Memory: an answer is the call's, as its kind says. */
#pragma once

#include "client/calls.h"

/* These are the callbacks of eb_dispatch_handler with the same names. They do not use the context;
 * each call is part of an eb_call. */
bool eb_call_answer_decode(void *context, const uint8_t *bytes, size_t size,
    struct eb_dispatch_answer *answer, struct eb_error *error);
bool eb_call_answer_accept(
    struct eb_dispatch_call *dispatched, void *message, struct eb_error *error);
void eb_call_answer_drop(void *context, void *message);
bool eb_call_answer_on_message(
    struct eb_dispatch_call *dispatched, const uint8_t *bytes, size_t size, struct eb_error *error);
void eb_call_answer_discard(struct eb_dispatch_call *dispatched);
