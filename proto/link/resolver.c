#include "proto/link/resolver.h"

#include "proto/list.h"
#include "proto/splitmix64.h"

#include <assert.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

/* One resolution of all names. Whoever is the last to need it frees it: the resolver if it is open,
 * the thread otherwise. */
struct eb_resolver_job {
    uv_mutex_t lock;           /* guards `owner` */
    struct eb_resolver *owner; /* NULL: the resolver was closed */
    struct eb_mail mail;       /* to the owner: the work is done */
    struct eb_target *targets; /* copies, because the thread may outlive the originals */
    uint32_t count;
    struct eb_resolver_result results[]; /* [count] */
};

static void free_job(struct eb_resolver_job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        free(job->results[i].addresses);
    }
    uv_mutex_destroy(&job->lock);
    free(job->targets);
    free(job);
}

static bool has_name(const struct eb_target *target)
{
    struct eb_address unused;
    return !eb_target_read_address(target, &unused);
}

static struct eb_resolver_job *create_job(struct eb_resolver *resolver)
{
    const struct eb_targets *targets = resolver->targets;
    struct eb_resolver_job *job = calloc(1, sizeof *job + targets->count * sizeof *job->results);
    if (!job) {
        return NULL;
    }
    job->targets = calloc(targets->count, sizeof *job->targets);
    if (!job->targets || uv_mutex_init(&job->lock) != 0) {
        free(job->targets);
        free(job);
        return NULL;
    }
    memcpy(job->targets, targets->items, targets->count * sizeof *job->targets);
    job->count = targets->count;
    job->owner = resolver;
    return job;
}

/* ---- the thread ---- */

static void refuse_name(
    struct eb_resolver_result *result, const struct eb_endpoint *endpoint, const char *why)
{
    result->count = 0;
    eb_error_set(&result->error, EB_STATUS_UNAVAILABLE, "cannot find the host \"%s\": %s",
        endpoint->host, why);
}

static void keep_addresses(struct eb_resolver_result *result, const struct eb_endpoint *endpoint,
    const struct addrinfo *found)
{
    uint32_t count = 0;
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        if (count < EB_RESOLVER_ADDRESSES_MAX) {
            count++;
        } else {
            result->left_out++;
        }
    }
    result->addresses = calloc(count, sizeof *result->addresses);
    if (!result->addresses) {
        refuse_name(result, endpoint, "out of memory");
        return;
    }
    for (const struct addrinfo *at = found; result->count < count; at = at->ai_next) {
        struct eb_address *address = &result->addresses[result->count++];
        address->size = at->ai_addrlen;
        memcpy(&address->socket_address, at->ai_addr, at->ai_addrlen);
    }
}

static void look_up(const struct eb_endpoint *endpoint, struct eb_resolver_result *result)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(endpoint->host, endpoint->port, &hints, &found);
    if (rc != 0) {
        refuse_name(result, endpoint, gai_strerror(rc));
        return;
    }
    keep_addresses(result, endpoint, found);
    freeaddrinfo(found);
}

/* Hands the results to the resolver, or frees them if it was closed. */
static void end_job(struct eb_resolver_job *job)
{
    uv_mutex_lock(&job->lock);
    struct eb_resolver *owner = job->owner;
    if (owner) {
        /* Under the lock, so that the mailbox is not closed meanwhile. */
        eb_mailbox_post(&owner->mailbox, &job->mail);
    }
    uv_mutex_unlock(&job->lock);
    if (!owner) {
        free_job(job);
    }
}

static void *run_job(void *argument)
{
    struct eb_resolver_job *job = argument;
    for (uint32_t i = 0; i < job->count; i++) {
        if (has_name(&job->targets[i])) {
            look_up(&job->targets[i].endpoint, &job->results[i]);
        }
    }
    end_job(job);
    return NULL;
}

/* Starts a detached thread, because nobody waits for it. It inherits the blocked signals of the
 * loop's thread. */
static bool start_job(struct eb_resolver_job *job)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    int rc = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    assert(rc == 0);
    rc = pthread_create(&thread, &attributes, run_job, job);
    int destroyed = pthread_attr_destroy(&attributes);
    assert(destroyed == 0);
    return rc == 0;
}

/* ---- the loop's thread ---- */

/* Returns a time after now_ns: the interval, of which 20 % either way are random. */
static uint64_t find_next_ns(struct eb_resolver *resolver, uint64_t now_ns)
{
    uint64_t spread_ns = resolver->interval_ns / 5 * 2;
    return now_ns + resolver->interval_ns - spread_ns / 2 +
           spread_ns * (eb_splitmix64_next(&resolver->random) >> 48) / 65536;
}

static void on_job_over(struct eb_mail *mail)
{
    struct eb_resolver_job *job = EB_CONTAINER_OF(mail, struct eb_resolver_job, mail);
    /* Waits until the thread has left the job. */
    uv_mutex_lock(&job->lock);
    struct eb_resolver *resolver = job->owner;
    uv_mutex_unlock(&job->lock);
    if (resolver) {
        resolver->job = NULL;
        resolver->ended_ns = uv_hrtime();
        resolver->due_ns = resolver->is_hurried ? resolver->ended_ns + EB_RESOLVER_PAUSE_NS
                                                : find_next_ns(resolver, resolver->ended_ns);
        resolver->is_hurried = false;
        resolver->on_results(resolver->context, job->results);
    }
    free_job(job);
}

int eb_resolver_open(struct eb_resolver *resolver, uv_loop_t *loop)
{
    int rc = eb_mailbox_open(&resolver->mailbox, loop);
    if (rc == 0) {
        resolver->job = NULL;
        resolver->ended_ns = 0;
        resolver->due_ns = 0;
        resolver->is_hurried = false;
        resolver->random = uv_hrtime() ^ (uintptr_t)resolver;
        resolver->is_open = true;
    }
    return rc;
}

void eb_resolver_close(struct eb_resolver *resolver)
{
    if (!resolver->is_open) {
        return;
    }
    resolver->is_open = false;
    if (resolver->job) {
        uv_mutex_lock(&resolver->job->lock);
        resolver->job->owner = NULL;
        uv_mutex_unlock(&resolver->job->lock);
        resolver->job = NULL;
    }
    /* Delivers the mail of a job that is over. */
    eb_mailbox_close(&resolver->mailbox);
}

void eb_resolver_hurry(struct eb_resolver *resolver)
{
    uint64_t due_ns = resolver->ended_ns + EB_RESOLVER_PAUSE_NS;
    if (resolver->job) {
        resolver->is_hurried = true;
    } else if (due_ns < resolver->due_ns) {
        resolver->due_ns = due_ns;
    }
}

uint64_t eb_resolver_run(struct eb_resolver *resolver, uint64_t now_ns)
{
    if (!resolver->is_open || resolver->job || now_ns < resolver->due_ns) {
        return resolver->is_open && !resolver->job ? resolver->due_ns : UINT64_MAX;
    }
    resolver->job = create_job(resolver);
    if (resolver->job) {
        resolver->job->mail.deliver = on_job_over;
        if (start_job(resolver->job)) {
            return UINT64_MAX;
        }
        free_job(resolver->job);
        resolver->job = NULL;
    }
    resolver->due_ns = now_ns + EB_RESOLVER_PAUSE_NS;
    return resolver->due_ns;
}
