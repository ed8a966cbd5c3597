#include "server/net/loop.h"

#include "proto/net/tls_stream.h"
#include "server/base/log.h"
#include "server/net/conn.h"
#include "server/net/conn_private.h"
#include "server/net/watchers.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

/* Longest time that readable connections are read between two writes. Those that are not read by
 * then wait; otherwise the answers to those that were read would wait for thousands of others.
 * Waiting connections are then served for as long as the reading took, and for at least one
 * slice. */
#define READING_NS_MAX 1000000
#define WRITING_NS_MAX 1000000 /* longest time of writing between two reads */
#define LONG_QUEUE 32          /* number of waiting connections whose slices take 5 ms */
#define FLUSHES_PER_LOOK 8     /* connections written between two readings of the clock */
/* Most connections closed in one cycle because their time for the TLS handshake is over. */
#define TIME_OUTS_PER_CYCLE_MAX 32

static void on_tick_timer(uv_timer_t *timer);

/* A connection on its way to another loop. */
struct handed_socket {
    struct eb_mail mail;
    struct eb_loop *loop;
    int socket;
    struct eb_conn_origin origin;
};

/* Starts the tick timer. It is stopped while the loop has no connections and no other need of it,
 * so that an idle loop does not wake. */
static void start_loop_ticks(struct eb_loop *loop)
{
    if (!uv_is_active((uv_handle_t *)&loop->tick)) {
        uv_timer_start(&loop->tick, on_tick_timer, loop->limits.tick_ms, loop->limits.tick_ms);
    }
}

/* Notes that the loop has work, at a time when no connection has read the clock. */
static void wake_now(struct eb_loop *loop)
{
    if (loop->busy_since_ns == 0) {
        loop->busy_since_ns = uv_hrtime();
    }
}

/* Notes that the loop has no work left, and counts how long it was busy. */
static void note_idle(struct eb_loop *loop)
{
    if (loop->busy_since_ns != 0) {
        uint64_t now_ns = loop->seen_ns ? loop->seen_ns : uv_hrtime();
        eb_histogram_add(&loop->counters.lag, now_ns - loop->busy_since_ns);
        loop->busy_since_ns = 0;
    }
}

/* ---- the loop's end ---- */

static void report_if_drained(struct eb_loop *loop)
{
    if (loop->state != EB_LOOP_DRAINING || !eb_list_is_empty(&loop->conns) || loop->holds > 0) {
        return;
    }
    loop->state = EB_LOOP_DRAINED;
    if (loop->is_started) {
        eb_mailbox_post(loop->drained_to, loop->drained);
    }
}

static void end_loop(struct eb_loop *loop)
{
    assert(loop->state == EB_LOOP_DRAINED);
    loop->options->on_loop_close(loop);
    uv_close((uv_handle_t *)&loop->tick, NULL);
    uv_close((uv_handle_t *)&loop->before_sleep, NULL);
    uv_close((uv_handle_t *)&loop->stay_awake, NULL);
    uv_close((uv_handle_t *)&loop->next_handshake, NULL);
    uv_close((uv_handle_t *)&loop->later, NULL);
    eb_hangup_watch_close(&loop->hangups);
    eb_mailbox_close(&loop->mailbox);
}

/* Returns the connection after `link`, or the first if `link` is the list. Returns NULL at the
 * end. */
static struct eb_conn *find_next_conn(const struct eb_loop *loop, const struct eb_list *link)
{
    return link->next == &loop->conns ? NULL : EB_CONTAINER_OF(link->next, struct eb_conn, open);
}

static void drain_loop(struct eb_loop *loop)
{
    if (loop->state != EB_LOOP_SERVING) {
        return;
    }
    loop->state = EB_LOOP_DRAINING;
    loop->drain_started_ms = eb_loop_now_ms(loop);
    start_loop_ticks(loop);
    for (size_t i = 0; i < loop->listener_count; i++) {
        eb_listener_stop(&loop->listeners[i].listener);
    }
    struct eb_conn *next;
    for (struct eb_conn *conn = find_next_conn(loop, &loop->conns); conn; conn = next) {
        next = find_next_conn(loop, &conn->open);
        eb_conn_drain(conn);
    }
    report_if_drained(loop);
}

static void cut_conns(struct eb_loop *loop, const char *reason)
{
    struct eb_conn *next;
    for (struct eb_conn *conn = find_next_conn(loop, &loop->conns); conn; conn = next) {
        next = find_next_conn(loop, &conn->open);
        eb_conn_close(conn, reason);
    }
}

static void on_drain_mail(struct eb_mail *mail)
{
    drain_loop(EB_CONTAINER_OF(mail, struct eb_loop, drain_mail));
}

static void on_cut_mail(struct eb_mail *mail)
{
    struct eb_loop *loop = EB_CONTAINER_OF(mail, struct eb_loop, cut_mail);
    drain_loop(loop);
    cut_conns(loop, "cut at shutdown");
}

static void on_loop_end_mail(struct eb_mail *mail)
{
    end_loop(EB_CONTAINER_OF(mail, struct eb_loop, end_mail));
}

/* ---- writing ---- */

static bool has_marked(const struct eb_loop *loop)
{
    return !eb_list_is_empty(&loop->marked) || !eb_list_is_empty(&loop->late);
}

/* Unmarks and returns the first connection of a list of marked ones. Returns NULL if the list is
 * empty. */
static struct eb_conn *pop_marked(struct eb_list *marked)
{
    struct eb_list *link = eb_list_pop(marked);
    return link ? EB_CONTAINER_OF(link, struct eb_conn, marked) : NULL;
}

/* Moves the connections whose time slice is over from `marked` to `spent`. */
static void move_spent(struct eb_list *spent, struct eb_list *marked)
{
    struct eb_list others;
    struct eb_conn *conn;
    eb_list_init(&others);
    while ((conn = pop_marked(marked))) {
        eb_list_push(conn->slice.is_over ? spent : &others, &conn->marked);
    }
    eb_list_move(marked, &others);
}

/* Writes for all connections that are marked now, until `deadline_ns` (uv_hrtime) has passed. A
 * connection that is marked again meanwhile is written in the next cycle. Connections that the last
 * cycle did not reach come first. Those whose time slice is over come last, since their writes take
 * time too. */
static void flush_marked(struct eb_loop *loop, uint64_t deadline_ns)
{
    struct eb_list now;
    struct eb_list spent;
    struct eb_conn *conn;
    eb_list_init(&now);
    eb_list_init(&spent);
    move_spent(&spent, &loop->marked);
    eb_list_move(&now, &loop->late);
    eb_list_move(&now, &loop->marked);
    eb_list_move(&now, &spent);
    for (unsigned count = 1; (conn = pop_marked(&now)); count++) {
        eb_conn_flush(conn);
        if (count % FLUSHES_PER_LOOK == 0 && uv_hrtime() >= deadline_ns) {
            break;
        }
    }
    eb_list_move(&loop->late, &now);
}

/* ---- time slices ---- */

/* Does nothing: an active idle handle is enough to keep the loop from sleeping. */
static void on_stay_awake(uv_idle_t *idle)
{
    (void)idle;
}

static struct eb_conn *pop_waiting(struct eb_loop *loop)
{
    struct eb_run_entry *entry = eb_run_queue_pop(&loop->waiting);
    return entry ? EB_CONTAINER_OF(entry, struct eb_conn, run) : NULL;
}

/* Gives slices to at most `count_max` waiting connections. A connection that begins to wait only
 * now is served after the loop has read the input of others. */
static void run_waiting(struct eb_loop *loop, size_t count_max)
{
    uint64_t begun_ns = uv_hrtime();
    uint64_t read_ns = loop->reading_since_ns ? begun_ns - loop->reading_since_ns : 0;
    uint64_t run_ns_max = read_ns < READING_NS_MAX ? read_ns : READING_NS_MAX;
    uint64_t now_ns = begun_ns;
    for (size_t i = 0; i < count_max && (i == 0 || now_ns - begun_ns < run_ns_max); i++) {
        struct eb_conn *conn = pop_waiting(loop);
        if (!conn) {
            return;
        }
        loop->seen_ns = 0;
        eb_conn_run(conn, now_ns);
        eb_list_remove(&conn->marked);
        eb_conn_flush(conn);
        now_ns = uv_hrtime();
    }
}

/* ---- TLS handshakes ---- */

static struct eb_conn *find_shaking(struct eb_handshake_entry *entry)
{
    return entry ? EB_CONTAINER_OF(entry, struct eb_conn, handshake) : NULL;
}

/* Closes connections whose time for the handshake is over before it has begun. */
static void time_out_handshakes(struct eb_loop *loop)
{
    uint64_t now_ns = uv_hrtime();
    for (int i = 0; i < TIME_OUTS_PER_CYCLE_MAX; i++) {
        struct eb_conn *conn = find_shaking(eb_handshake_queue_pop_late(&loop->handshakes, now_ns));
        if (!conn) {
            return;
        }
        eb_conn_time_out(conn);
    }
}

/* Begins a step of a handshake, if none is in progress and one may begin now. */
static void run_handshake(struct eb_loop *loop)
{
    uint64_t now_ns = uv_hrtime();
    if (eb_handshake_thread_is_busy(&loop->handshake_thread)) {
        return;
    }
    struct eb_conn *conn = find_shaking(
        eb_handshake_queue_pop(&loop->handshakes, loop->limits.handshakes_per_s_max, now_ns));
    if (!conn) {
        return;
    }
    eb_loop_wake(loop, now_ns);
    loop->seen_ns = 0;
    eb_conn_begin_step(conn, now_ns);
    if (eb_handshake_thread_is_busy(&loop->handshake_thread)) {
        eb_loop_hold(loop); /* The loop must not end before the step. */
    }
}

static void on_step_over(struct eb_mail *mail)
{
    struct eb_handshake_step *step = EB_CONTAINER_OF(mail, struct eb_handshake_step, mail);
    struct eb_loop *loop = EB_CONTAINER_OF(step, struct eb_loop, handshake_thread.step);
    struct eb_conn *conn = step->conn;
    struct eb_tls_stream *stream = eb_handshake_thread_end(&loop->handshake_thread);
    loop->counters.handshake_ns += step->cpu_ns;
    if (!conn) {
        eb_tls_stream_destroy(stream);
    } else if (!eb_conn_is_ending(conn)) {
        eb_conn_end_step(conn);
    }
    run_handshake(loop); /* so that the thread need not wait until the loop's cycle ends */
    eb_loop_release(loop);
}

/* Does nothing: it only wakes the loop, which begins a step of a handshake in each cycle. */
static void on_next_handshake(uv_timer_t *timer)
{
    (void)timer;
}

/* Returns whether a step of a handshake may begin now. If not, makes the loop wake when one may:
 * the end of the step in progress will, or else a timer. */
static bool has_handshake(struct eb_loop *loop)
{
    if (eb_handshake_queue_count(&loop->handshakes) == 0 ||
        eb_handshake_thread_is_busy(&loop->handshake_thread)) {
        return false;
    }
    uint64_t pause_ns = eb_handshake_queue_pause_ns(
        &loop->handshakes, loop->limits.handshakes_per_s_max, uv_hrtime());
    if (pause_ns > 0) {
        uv_timer_start(&loop->next_handshake, on_next_handshake, pause_ns / 1000000 + 1, 0);
    }
    return pause_ns == 0;
}

static void on_loop_before_sleep(uv_prepare_t *prepare)
{
    struct eb_loop *loop = prepare->data;
    loop->stays_awake = false;
    if (loop->options->on_loop_before_sleep) {
        loop->options->on_loop_before_sleep(loop);
    }
    size_t waiting_count = loop->waiting.count;
    if (has_marked(loop) || waiting_count > 0) {
        wake_now(loop);
    }
    loop->seen_ns = 0;
    if (has_marked(loop)) {
        flush_marked(loop, uv_hrtime() + WRITING_NS_MAX);
    }
    if (waiting_count > 0) {
        run_waiting(loop, waiting_count);
    }
    if (eb_handshake_queue_count(&loop->handshakes) > 0) {
        time_out_handshakes(loop);
        run_handshake(loop);
    }
    loop->reading_since_ns = 0;
    if (has_handshake(loop) || has_marked(loop) || loop->waiting.count > 0 || loop->stays_awake) {
        uv_idle_start(&loop->stay_awake, on_stay_awake);
    } else {
        uv_idle_stop(&loop->stay_awake);
    }
    note_idle(loop);
}

bool eb_loop_may_read(struct eb_loop *loop, bool is_light, uint64_t now_ns)
{
    if (loop->reading_since_ns == 0) {
        loop->reading_since_ns = now_ns;
    }
    return now_ns - loop->reading_since_ns < READING_NS_MAX &&
           (is_light || loop->waiting.count == 0);
}

bool eb_loop_has_long_queue(const struct eb_loop *loop)
{
    return loop->waiting.count >= LONG_QUEUE;
}

static void on_loop_hangup(void *connection)
{
    eb_conn_hang_up(connection);
}

bool eb_loop_may_log(struct eb_loop *loop)
{
    start_loop_ticks(loop); /* A later tick logs how many lines were left out. */
    return eb_log_rate_limit_allows(&loop->refusals, eb_loop_now_ms(loop));
}

static void report_left_out(struct eb_loop *loop, uint64_t now_ms)
{
    uint64_t left_out = eb_log_rate_limit_take_left_out(&loop->refusals, now_ms);
    if (left_out > 0) {
        eb_log(EB_LOG_WARN, "connections_refused", eb_log_count("count", left_out),
            eb_log_text("reason", "more connections were refused than are logged one by one"));
    }
}

static void on_tick_timer(uv_timer_t *timer)
{
    struct eb_loop *loop = timer->data;
    uint64_t now_ms = eb_loop_now_ms(loop);
    struct eb_conn *next;
    wake_now(loop);
    for (struct eb_conn *conn = find_next_conn(loop, &loop->conns); conn; conn = next) {
        next = find_next_conn(loop, &conn->open);
        eb_conn_tick(conn, now_ms);
    }
    for (size_t i = 0; i < loop->listener_count; i++) {
        eb_listener_resume(&loop->listeners[i].listener);
    }
    report_left_out(loop, now_ms);
    bool has_more = loop->options->on_loop_tick(loop) || loop->refusals.left_out > 0;
    if (loop->state == EB_LOOP_SERVING && eb_list_is_empty(&loop->conns) && !has_more) {
        uv_timer_stop(&loop->tick);
    }
    if (loop->state == EB_LOOP_DRAINING &&
        now_ms - loop->drain_started_ms >= loop->limits.drain_timeout_ms) {
        cut_conns(loop, "drain_timeout_ms is over");
    }
}

static void run_loop_thread(void *context)
{
    struct eb_loop *loop = context;
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

/* ---- accepting ---- */

static void release_count(struct eb_loop *loop)
{
    atomic_fetch_sub(&loop->conn_count, 1);
}

/* Counts a connection that the loop is about to open. This happens when the connection is accepted,
 * so that connections on their way to another loop count too. The count is raised before it is
 * checked, so that loops that accept at the same time do not exceed connections_max. Returns false,
 * with the count as before, if connections_max would be exceeded. */
static bool try_count(struct eb_loop *loop)
{
    uint64_t taken = 0;
    atomic_fetch_add(&loop->conn_count, 1);
    for (size_t i = 0; i < loop->options->loop_count; i++) {
        taken += eb_loop_conn_count(loop->options->loops[i]);
    }
    if (taken > loop->limits.connections_max) {
        release_count(loop);
        return false;
    }
    return true;
}

/* Opens a connection that has been counted. */
static void open_conn(struct eb_loop *loop, int socket, struct eb_conn_origin origin)
{
    if (loop->state != EB_LOOP_SERVING) {
        release_count(loop);
        close(socket);
    } else if (!eb_conn_open(loop, socket, origin)) {
        release_count(loop);
        eb_log(
            EB_LOG_WARN, "connection_dropped", eb_log_text("reason", "out of memory or sockets"));
    }
}

static void on_handed(struct eb_mail *mail)
{
    struct handed_socket *handed = EB_CONTAINER_OF(mail, struct handed_socket, mail);
    struct eb_loop *loop = handed->loop;
    open_conn(loop, handed->socket, handed->origin);
    free(handed);
}

static void refuse_socket(struct eb_loop *loop, int socket)
{
    loop->counters.refusals[EB_REFUSAL_CONNECTIONS]++;
    close(socket);
    if (eb_loop_may_log(loop)) {
        eb_log(EB_LOG_WARN, "connection_dropped",
            eb_log_text("reason", "connections_max is reached"),
            eb_log_number("connections_max", (int64_t)loop->limits.connections_max));
    }
}

/* Returns the loop that gets the next connection. */
static struct eb_loop *choose_loop(struct eb_loop *loop, bool shared)
{
    if (!shared) {
        return loop;
    }
    struct eb_loop *chosen = loop->options->loops[loop->next_shared];
    loop->next_shared = (unsigned)((loop->next_shared + 1) % loop->options->loop_count);
    return chosen;
}

static void on_loop_accept(struct eb_listener *listener, int socket)
{
    struct eb_loop *loop = listener->context;
    struct eb_conn_origin origin = {eb_address_is_unix(&listener->address), listener->is_admin};
    wake_now(loop);
    /* Opening a connection with TLS takes some 60 us. Further ones need not be open before the
     * handshakes of those that wait. */
    listener->accepts_one = eb_handshake_queue_count(&loop->handshakes) > 0;
    const struct eb_loop_listener *slot =
        EB_CONTAINER_OF(listener, struct eb_loop_listener, listener);
    struct eb_loop *target = choose_loop(loop, slot->is_shared);
    struct handed_socket *handed = target == loop ? NULL : malloc(sizeof *handed);
    if (!try_count(handed ? target : loop)) {
        free(handed);
        refuse_socket(loop, socket);
        return;
    }
    if (!handed) {
        open_conn(loop, socket, origin);
        return;
    }
    *handed = (struct handed_socket){
        .mail = {.deliver = on_handed}, .loop = target, .socket = socket, .origin = origin};
    eb_mailbox_post(&target->mailbox, &handed->mail);
}

static void on_loop_exhausted(struct eb_listener *listener)
{
    start_loop_ticks(listener->context);
}

int eb_loop_listen(struct eb_loop *loop, const struct eb_listener *listener, bool shared)
{
    if (loop->listener_count == EB_LOOP_LISTENERS_MAX) {
        return UV_ENOBUFS;
    }
    struct eb_loop_listener *slot = &loop->listeners[loop->listener_count];
    *slot = (struct eb_loop_listener){.listener = *listener, .is_shared = shared};
    slot->listener.context = loop;
    slot->listener.on_accept = on_loop_accept;
    slot->listener.on_exhausted = on_loop_exhausted;
    int rc = eb_listener_start(&slot->listener, &loop->uv);
    if (rc == 0) {
        loop->listener_count++;
    }
    return rc;
}

/* ---- life ---- */

static void on_loop_delivery(struct eb_mailbox *mailbox)
{
    wake_now(EB_CONTAINER_OF(mailbox, struct eb_loop, mailbox));
}

static int open_loop_handles(struct eb_loop *loop)
{
    int rc = eb_watchers_reserve(&loop->uv, loop->limits.connections_max);
    rc = rc < 0 ? rc : eb_mailbox_open(&loop->mailbox, &loop->uv);
    if (rc < 0) {
        return rc;
    }
    rc = eb_hangup_watch_open(&loop->hangups, &loop->uv, on_loop_hangup);
    if (rc < 0) {
        eb_mailbox_close(&loop->mailbox);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
        return rc;
    }
    loop->mailbox.on_delivery = on_loop_delivery;
    uv_timer_init(&loop->uv, &loop->tick);
    uv_prepare_init(&loop->uv, &loop->before_sleep);
    uv_idle_init(&loop->uv, &loop->stay_awake);
    uv_timer_init(&loop->uv, &loop->next_handshake);
    uv_timer_init(&loop->uv, &loop->later);
    loop->later.data = loop;
    loop->tick.data = loop;
    loop->before_sleep.data = loop;
    uv_prepare_start(&loop->before_sleep, on_loop_before_sleep);
    return 0;
}

int eb_loop_create(struct eb_loop **out, const struct eb_loop_options *options)
{
    *out = NULL;
    struct eb_loop *loop = calloc(1, sizeof *loop);
    char *read_buffer = malloc(EB_TIME_SLICE_READ_MAX);
    int rc = loop && read_buffer ? uv_loop_init(&loop->uv) : UV_ENOMEM;
    if (rc < 0) {
        free(read_buffer);
        free(loop);
        return rc;
    }
    loop->read_buffer = read_buffer;
    eb_list_init(&loop->conns);
    eb_list_init(&loop->marked);
    eb_list_init(&loop->late);
    eb_run_queue_init(&loop->waiting);
    eb_handshake_queue_init(&loop->handshakes);
    loop->options = options;
    loop->limits = options->limits;
    loop->watched_max = options->limits.connections_max;
    loop->drain_mail.deliver = on_drain_mail;
    loop->cut_mail.deliver = on_cut_mail;
    loop->end_mail.deliver = on_loop_end_mail;
    eb_buffer_pool_init(&loop->receive_pool, options->receive_memory_bytes);
    eb_buffer_pool_init(&loop->answer_pool, options->answer_memory_bytes);
    loop->receive_memory = eb_buffer_pool_memory(&loop->receive_pool);
    loop->tls = eb_tls_hold(options->tls);
    loop->user = options->on_loop_open(loop);
    rc = loop->user ? open_loop_handles(loop) : UV_ENOMEM;
    if (rc < 0) {
        if (loop->user) {
            options->on_loop_close(loop);
        }
        (void)uv_loop_close(&loop->uv);
        eb_tls_drop(loop->tls);
        free(read_buffer);
        free(loop);
        return rc;
    }
    *out = loop;
    return 0;
}

int eb_loop_start(struct eb_loop *loop, struct eb_mailbox *mailbox, struct eb_mail *drained)
{
    loop->drained_to = mailbox;
    loop->drained = drained;
    if (loop->tls) {
        int rc = eb_handshake_thread_start(&loop->handshake_thread, &loop->mailbox, on_step_over);
        if (rc < 0) {
            return rc;
        }
    }
    loop->is_started = true; /* set before the thread can read it */
    int rc = uv_thread_create(&loop->thread, run_loop_thread, loop);
    loop->is_started = rc == 0;
    if (rc < 0) {
        eb_handshake_thread_stop(&loop->handshake_thread);
    }
    return rc;
}

void eb_loop_destroy(struct eb_loop *loop)
{
    if (!loop) {
        return;
    }
    if (loop->is_started) {
        uv_thread_join(&loop->thread);
    } else {
        drain_loop(loop);
        end_loop(loop);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
    }
    eb_handshake_thread_stop(&loop->handshake_thread);
    int rc = uv_loop_close(&loop->uv);
    assert(rc == 0);
    eb_buffer_pool_deinit(&loop->receive_pool);
    eb_buffer_pool_deinit(&loop->answer_pool);
    eb_tls_drop(loop->tls);
    free(loop->read_buffer);
    free(loop);
}

void eb_loop_drain(struct eb_loop *loop)
{
    eb_mailbox_post(&loop->mailbox, &loop->drain_mail);
}

void eb_loop_cut(struct eb_loop *loop)
{
    eb_mailbox_post(&loop->mailbox, &loop->cut_mail);
}

void eb_loop_end(struct eb_loop *loop)
{
    eb_mailbox_post(&loop->mailbox, &loop->end_mail);
}

/* ---- for connections and services ---- */

void eb_loop_add(struct eb_loop *loop, struct eb_conn *conn)
{
    eb_list_push(&loop->conns, &conn->open);
    loop->counters.connections++;
    start_loop_ticks(loop);
}

void eb_loop_remove(struct eb_loop *loop, struct eb_conn *conn)
{
    eb_run_queue_remove(&loop->waiting, &conn->run);
    eb_handshake_queue_remove(&loop->handshakes, &conn->handshake);
    eb_list_remove(&conn->marked);
    eb_list_remove(&conn->open);
    release_count(loop);
    report_if_drained(loop);
}

void eb_loop_wake(struct eb_loop *loop, uint64_t now_ns)
{
    if (loop->busy_since_ns == 0) {
        loop->busy_since_ns = now_ns;
    }
}

static void on_later_timer(uv_timer_t *timer)
{
    struct eb_loop *loop = timer->data;
    wake_now(loop);
    loop->options->on_loop_later(loop);
}

void eb_loop_call_later(struct eb_loop *loop, uint64_t delay_ms)
{
    if (!uv_is_active((uv_handle_t *)&loop->later)) {
        uv_timer_start(&loop->later, on_later_timer, delay_ms, 0);
    }
}

void eb_loop_stay_awake(struct eb_loop *loop)
{
    loop->stays_awake = true;
}

uv_loop_t *eb_loop_uv(struct eb_loop *loop)
{
    return &loop->uv;
}

void eb_loop_hold(struct eb_loop *loop)
{
    loop->holds++;
}

void eb_loop_release(struct eb_loop *loop)
{
    assert(loop->holds > 0);
    loop->holds--;
    report_if_drained(loop);
}

void eb_loop_set_tls(struct eb_loop *loop, struct eb_tls *tls)
{
    struct eb_tls *former = loop->tls;
    assert(!former == !tls);
    loop->tls = eb_tls_hold(tls);
    eb_tls_drop(former);
}

/* Makes the loop's table of watchers large enough for `connections_max` connections. If there is no
 * memory for that, logs it and returns how many connections there is room for. */
static uint64_t watch_more(struct eb_loop *loop, uint64_t connections_max)
{
    if (connections_max <= loop->watched_max) {
        return connections_max;
    }
    int rc = eb_watchers_extend(&loop->uv, connections_max);
    if (rc < 0) {
        eb_log(EB_LOG_WARN, "few_watchers", eb_log_text("reason", uv_strerror(rc)),
            eb_log_count("connections_max", loop->watched_max),
            eb_log_count("wanted", connections_max),
            eb_log_text("remedy", "free some memory or descriptors and set connections_max again"));
        return loop->watched_max;
    }
    loop->watched_max = connections_max;
    return connections_max;
}

void eb_loop_set_limits(struct eb_loop *loop, const struct eb_loop_limits *limits)
{
    bool has_tick = loop->limits.tick_ms != limits->tick_ms;
    loop->limits = *limits;
    loop->limits.connections_max = watch_more(loop, limits->connections_max);
    if (has_tick && uv_is_active((uv_handle_t *)&loop->tick)) {
        uv_timer_stop(&loop->tick);
        start_loop_ticks(loop);
    }
}

struct eb_mailbox *eb_loop_mailbox(struct eb_loop *loop)
{
    return &loop->mailbox;
}

struct eb_buffer_pool *eb_loop_answer_pool(struct eb_loop *loop)
{
    return &loop->answer_pool;
}

struct eb_buffer_pool *eb_loop_receive_pool(struct eb_loop *loop)
{
    return &loop->receive_pool;
}

const struct eb_loop_options *eb_loop_options(const struct eb_loop *loop)
{
    return loop->options;
}

void *eb_loop_user(const struct eb_loop *loop)
{
    return loop->user;
}

struct eb_counters *eb_loop_counters(struct eb_loop *loop)
{
    return &loop->counters;
}

uint64_t eb_loop_conn_count(const struct eb_loop *loop)
{
    return atomic_load(&loop->conn_count);
}

uint64_t eb_loop_handshake_count(const struct eb_loop *loop)
{
    return eb_handshake_queue_count(&loop->handshakes);
}

bool eb_loop_is_draining(const struct eb_loop *loop)
{
    return loop->state != EB_LOOP_SERVING;
}

uint64_t eb_loop_now_ms(const struct eb_loop *loop)
{
    return uv_now(&loop->uv);
}
