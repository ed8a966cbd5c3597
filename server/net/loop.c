#include "server/net/loop.h"

#include "server/base/log.h"
#include "server/base/log_rate_limit.h"
#include "server/net/hangup_watch.h"
#include "server/net/time_slice.h"
#include "server/net/watchers.h"
#include "server/net/write_queue.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define LISTENERS_MAX 128 /* 16 addresses of up to 8 each */
/* How long readable connections are read between two writes. Those that are not read by then wait;
 * otherwise the answers to those that were read would wait for thousands of others. Waiting
 * connections are then served for as long as the reading took, and for at least one slice. */
#define READING_NS_MAX 1000000
#define WRITING_NS_MAX 1000000 /* likewise of writing, between two looks at what has come */
#define LONG_QUEUE 32          /* connections that wait: their slices take 5 ms */

enum loop_state { LOOP_SERVING, LOOP_DRAINING, LOOP_DRAINED };

struct loop_listener {
    struct eb_listener listener;
    bool shared;
};

struct eb_loop {
    uv_loop_t uv;
    uv_thread_t thread;
    uv_timer_t tick;
    uv_prepare_t before_sleep;
    uv_idle_t stay_awake; /* active while a connection has more to write, or waits for a slice */
    struct eb_hangup_watch hangups;
    struct eb_mailbox mailbox;
    struct eb_mail drain_mail;
    struct eb_mail cut_mail;
    struct eb_mail end_mail;
    struct eb_mailbox *drained_to;
    struct eb_mail *drained;
    const struct eb_loop_options *options;
    struct eb_tls *tls; /* NULL: plain bytes */
    struct eb_log_rate_limit refusals;
    void *user;
    struct eb_list conns;
    struct eb_write_queue writes;
    struct eb_run_queue waiting;
    atomic_uint_fast64_t conn_count; /* places taken: open, or on their way here */
    uint64_t holds;
    uint64_t drain_started_ms;
    enum loop_state state;
    bool started;
    unsigned next_shared; /* whose turn it is to take a shared listener's connection */
    size_t listener_count;
    struct loop_listener listeners[LISTENERS_MAX];
    struct eb_buffer_pool receive_pool;
    struct eb_buffer_pool answer_pool;
    struct eb_memory receive_memory;
    uint64_t busy_since_ns;    /* when it was woken; 0: it sleeps, or has only just begun */
    uint64_t seen_ns;          /* the last look of this cycle, if there was one since; else 0 */
    uint64_t reading_since_ns; /* when this cycle's reading began; 0: it has not */
    struct eb_counters counters;
    struct eb_time_slice_reader reader;
    char *read_buffer;
};

static void on_tick(uv_timer_t *timer);

/* A connection on its way to another loop. */
struct handed_socket {
    struct eb_mail mail;
    struct eb_loop *loop;
    int socket;
    struct eb_conn_origin origin;
};

/* A loop that has nothing to look after does not tick: idle it does not wake. */
static void start_ticks(struct eb_loop *loop)
{
    if (!uv_is_active((uv_handle_t *)&loop->tick)) {
        const uint64_t tick_ms = loop->options->tick_ms;
        uv_timer_start(&loop->tick, on_tick, tick_ms, tick_ms);
    }
}

/* Something is to be done that none of the connections has looked at the clock for. */
static void wake(struct eb_loop *loop)
{
    if (loop->busy_since_ns == 0) {
        loop->busy_since_ns = uv_hrtime();
    }
}

/* All is done that was to be. */
static void rest(struct eb_loop *loop)
{
    if (loop->busy_since_ns != 0) {
        const uint64_t now_ns = loop->seen_ns ? loop->seen_ns : uv_hrtime();
        eb_histogram_add(&loop->counters.lag, now_ns - loop->busy_since_ns);
        loop->busy_since_ns = 0;
    }
}

/* ---- the loop's end ---- */

static void report_if_drained(struct eb_loop *loop)
{
    if (loop->state != LOOP_DRAINING || !eb_list_is_empty(&loop->conns) || loop->holds > 0) {
        return;
    }
    loop->state = LOOP_DRAINED;
    if (loop->started) {
        eb_mailbox_post(loop->drained_to, loop->drained);
    }
}

static void end(struct eb_loop *loop)
{
    assert(loop->state == LOOP_DRAINED);
    loop->options->on_loop_close(loop);
    uv_close((uv_handle_t *)&loop->tick, NULL);
    uv_close((uv_handle_t *)&loop->before_sleep, NULL);
    uv_close((uv_handle_t *)&loop->stay_awake, NULL);
    eb_hangup_watch_close(&loop->hangups);
    eb_mailbox_close(&loop->mailbox);
}

/* Returns the connection after `link`, or the first if `link` is the list. NULL: there is none. */
static struct eb_conn *find_next_conn(const struct eb_loop *loop, const struct eb_list *link)
{
    return link->next == &loop->conns
               ? NULL
               : EB_CONTAINER_OF(link->next, struct eb_conn_links, open)->conn;
}

static struct eb_conn *find_first_conn(const struct eb_loop *loop)
{
    return find_next_conn(loop, &loop->conns);
}

static struct eb_conn *find_conn_after(const struct eb_loop *loop, struct eb_conn *conn)
{
    return find_next_conn(loop, &eb_conn_links(conn)->open);
}

static void drain(struct eb_loop *loop)
{
    if (loop->state != LOOP_SERVING) {
        return;
    }
    loop->state = LOOP_DRAINING;
    loop->drain_started_ms = eb_loop_now_ms(loop);
    start_ticks(loop);
    for (size_t i = 0; i < loop->listener_count; i++) {
        eb_listener_stop(&loop->listeners[i].listener);
    }
    struct eb_conn *next;
    for (struct eb_conn *conn = find_first_conn(loop); conn; conn = next) {
        next = find_conn_after(loop, conn);
        eb_conn_drain(conn);
    }
    report_if_drained(loop);
}

static void cut(struct eb_loop *loop, const char *reason)
{
    struct eb_conn *next;
    for (struct eb_conn *conn = find_first_conn(loop); conn; conn = next) {
        next = find_conn_after(loop, conn);
        eb_conn_close(conn, reason);
    }
}

static void on_drain_mail(struct eb_mail *mail)
{
    drain((struct eb_loop *)((char *)mail - offsetof(struct eb_loop, drain_mail)));
}

static void on_cut_mail(struct eb_mail *mail)
{
    struct eb_loop *loop = (struct eb_loop *)((char *)mail - offsetof(struct eb_loop, cut_mail));
    drain(loop);
    cut(loop, "cut at shutdown");
}

static void on_end_mail(struct eb_mail *mail)
{
    end((struct eb_loop *)((char *)mail - offsetof(struct eb_loop, end_mail)));
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
    return entry ? EB_CONTAINER_OF(entry, struct eb_conn_links, run)->conn : NULL;
}

/* Gives slices to at most `count_max` waiting connections. One that begins to wait only now is
 * served after the loop has read what has come for others. */
static void run_waiting(struct eb_loop *loop, size_t count_max)
{
    const uint64_t begun_ns = uv_hrtime();
    const uint64_t read_ns = loop->reading_since_ns ? begun_ns - loop->reading_since_ns : 0;
    const uint64_t run_ns_max = read_ns < READING_NS_MAX ? read_ns : READING_NS_MAX;
    uint64_t now_ns = begun_ns;
    for (size_t i = 0; i < count_max && (i == 0 || now_ns - begun_ns < run_ns_max); i++) {
        struct eb_conn *conn = pop_waiting(loop);
        if (!conn) {
            return;
        }
        loop->seen_ns = 0;
        eb_conn_run(conn, now_ns);
        eb_list_remove(&eb_conn_links(conn)->marked);
        eb_conn_flush(conn);
        now_ns = uv_hrtime();
    }
}

static void on_before_sleep(uv_prepare_t *prepare)
{
    struct eb_loop *loop = prepare->data;
    const size_t waiting_count = loop->waiting.count;
    if (!eb_write_queue_is_empty(&loop->writes) || waiting_count > 0) {
        wake(loop);
    }
    loop->seen_ns = 0;
    if (!eb_write_queue_is_empty(&loop->writes)) {
        eb_write_queue_flush(&loop->writes, uv_hrtime() + WRITING_NS_MAX);
    }
    if (waiting_count > 0) {
        run_waiting(loop, waiting_count);
    }
    loop->reading_since_ns = 0;
    if (!eb_write_queue_is_empty(&loop->writes) || loop->waiting.count > 0) {
        uv_idle_start(&loop->stay_awake, on_stay_awake);
    } else {
        uv_idle_stop(&loop->stay_awake);
    }
    rest(loop);
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

void eb_loop_wait(struct eb_loop *loop, struct eb_conn *conn, uint64_t slices)
{
    eb_run_queue_push(&loop->waiting, &eb_conn_links(conn)->run, slices);
}

void eb_loop_stop_waiting(struct eb_loop *loop, struct eb_conn *conn)
{
    eb_run_queue_remove(&loop->waiting, &eb_conn_links(conn)->run);
}

static void on_hangup(void *connection)
{
    eb_conn_hang_up(connection);
}

int eb_loop_watch_hangup(struct eb_loop *loop, struct eb_conn *conn, int socket)
{
    return eb_hangup_watch_add(&loop->hangups, socket, conn);
}

void eb_loop_forget_hangup(struct eb_loop *loop, int socket)
{
    eb_hangup_watch_forget(&loop->hangups, socket);
}

bool eb_loop_may_log(struct eb_loop *loop)
{
    start_ticks(loop); /* One of them says how many lines were left out. */
    return eb_log_rate_limit_allows(&loop->refusals, eb_loop_now_ms(loop));
}

static void report_left_out(struct eb_loop *loop, uint64_t now_ms)
{
    const uint64_t left_out = eb_log_rate_limit_take_left_out(&loop->refusals, now_ms);
    if (left_out > 0) {
        eb_log(EB_LOG_WARN, "connections_refused", eb_log_count("count", left_out),
            eb_log_text("reason", "more were refused than are logged one by one"));
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct eb_loop *loop = timer->data;
    uint64_t now_ms = eb_loop_now_ms(loop);
    struct eb_conn *next;
    wake(loop);
    for (struct eb_conn *conn = find_first_conn(loop); conn; conn = next) {
        next = find_conn_after(loop, conn);
        eb_conn_tick(conn, now_ms);
    }
    for (size_t i = 0; i < loop->listener_count; i++) {
        eb_listener_resume(&loop->listeners[i].listener);
    }
    report_left_out(loop, now_ms);
    const bool has_more = loop->options->on_loop_tick(loop) || loop->refusals.left_out > 0;
    if (loop->state == LOOP_SERVING && eb_list_is_empty(&loop->conns) && !has_more) {
        uv_timer_stop(&loop->tick);
    }
    if (loop->state == LOOP_DRAINING &&
        now_ms - loop->drain_started_ms >= loop->options->drain_timeout_ms) {
        cut(loop, "drain_timeout_ms is over");
    }
}

static void run_thread(void *context)
{
    struct eb_loop *loop = context;
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

/* ---- accepting ---- */

static void give_place(struct eb_loop *loop)
{
    atomic_fetch_sub(&loop->conn_count, 1);
}

/* A place among connections_max for one that the loop is to open, taken when it is accepted: those
 * on their way to their loops are as many as have come. Taken first and counted then, so that loops
 * that accept at once do not take the same one. false: there is none left. */
static bool take_place(struct eb_loop *loop)
{
    uint64_t taken = 0;
    atomic_fetch_add(&loop->conn_count, 1);
    for (size_t i = 0; i < loop->options->loop_count; i++) {
        taken += eb_loop_conn_count(loop->options->loops[i]);
    }
    if (taken > loop->options->connections_max) {
        give_place(loop);
        return false;
    }
    return true;
}

/* In the place that was taken for it. */
static void open_conn(struct eb_loop *loop, int socket, struct eb_conn_origin origin)
{
    if (loop->state != LOOP_SERVING) {
        give_place(loop);
        close(socket);
    } else if (!eb_conn_open(loop, socket, origin)) {
        give_place(loop);
        eb_log(
            EB_LOG_WARN, "connection_dropped", eb_log_text("reason", "out of memory or sockets"));
    }
}

static void on_handed(struct eb_mail *mail)
{
    struct handed_socket *handed = (struct handed_socket *)mail;
    struct eb_loop *loop = handed->loop;
    open_conn(loop, handed->socket, handed->origin);
    free(handed);
}

static void refuse(struct eb_loop *loop, int socket)
{
    loop->counters.refusals[EB_REFUSAL_CONNECTIONS]++;
    close(socket);
    if (eb_loop_may_log(loop)) {
        eb_log(EB_LOG_WARN, "connection_dropped",
            eb_log_text("reason", "connections_max is reached"),
            eb_log_number("connections_max", (int64_t)loop->options->connections_max));
    }
}

/* Whose turn it is to take a connection. */
static struct eb_loop *choose_loop(struct eb_loop *loop, bool shared)
{
    if (!shared) {
        return loop;
    }
    struct eb_loop *chosen = loop->options->loops[loop->next_shared];
    loop->next_shared = (unsigned)((loop->next_shared + 1) % loop->options->loop_count);
    return chosen;
}

static void on_accept(struct eb_listener *listener, int socket)
{
    struct eb_loop *loop = listener->context;
    const struct eb_conn_origin origin = {
        eb_address_is_unix(&listener->address), listener->is_admin};
    wake(loop);
    struct eb_loop *target = choose_loop(loop, ((struct loop_listener *)listener)->shared);
    struct handed_socket *handed = target == loop ? NULL : malloc(sizeof *handed);
    if (!take_place(handed ? target : loop)) {
        free(handed);
        refuse(loop, socket);
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

static void on_exhausted(struct eb_listener *listener)
{
    start_ticks(listener->context);
}

int eb_loop_listen(struct eb_loop *loop, const struct eb_listener *listener, bool shared)
{
    if (loop->listener_count == LISTENERS_MAX) {
        return UV_ENOBUFS;
    }
    struct loop_listener *slot = &loop->listeners[loop->listener_count];
    *slot = (struct loop_listener){.listener = *listener, .shared = shared};
    slot->listener.context = loop;
    slot->listener.on_accept = on_accept;
    slot->listener.on_exhausted = on_exhausted;
    int code = eb_listener_start(&slot->listener, &loop->uv);
    if (code == 0) {
        loop->listener_count++;
    }
    return code;
}

/* ---- life ---- */

static void on_delivery(struct eb_mailbox *mailbox)
{
    wake((struct eb_loop *)((char *)mailbox - offsetof(struct eb_loop, mailbox)));
}

static int open_handles(struct eb_loop *loop)
{
    int code = eb_watchers_reserve(&loop->uv, loop->options->connections_max);
    code = code < 0 ? code : eb_mailbox_open(&loop->mailbox, &loop->uv);
    if (code < 0) {
        return code;
    }
    code = eb_hangup_watch_open(&loop->hangups, &loop->uv, on_hangup);
    if (code < 0) {
        eb_mailbox_close(&loop->mailbox);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
        return code;
    }
    loop->mailbox.on_delivery = on_delivery;
    uv_timer_init(&loop->uv, &loop->tick);
    uv_prepare_init(&loop->uv, &loop->before_sleep);
    uv_idle_init(&loop->uv, &loop->stay_awake);
    loop->tick.data = loop;
    loop->before_sleep.data = loop;
    uv_prepare_start(&loop->before_sleep, on_before_sleep);
    return 0;
}

int eb_loop_create(struct eb_loop **out, const struct eb_loop_options *options)
{
    *out = NULL;
    struct eb_loop *loop = calloc(1, sizeof *loop);
    char *read_buffer = malloc(EB_TIME_SLICE_READ_MAX);
    int code = loop && read_buffer ? uv_loop_init(&loop->uv) : UV_ENOMEM;
    if (code < 0) {
        free(read_buffer);
        free(loop);
        return code;
    }
    loop->read_buffer = read_buffer;
    eb_list_init(&loop->conns);
    eb_write_queue_init(&loop->writes);
    eb_run_queue_init(&loop->waiting);
    loop->options = options;
    loop->drain_mail.deliver = on_drain_mail;
    loop->cut_mail.deliver = on_cut_mail;
    loop->end_mail.deliver = on_end_mail;
    eb_buffer_pool_init(&loop->receive_pool, options->receive_memory_bytes);
    eb_buffer_pool_init(&loop->answer_pool, options->answer_memory_bytes);
    loop->receive_memory = eb_buffer_pool_memory(&loop->receive_pool);
    loop->tls = eb_tls_hold(options->tls);
    loop->user = options->on_loop_open(loop);
    code = loop->user ? open_handles(loop) : UV_ENOMEM;
    if (code < 0) {
        if (loop->user) {
            options->on_loop_close(loop);
        }
        (void)uv_loop_close(&loop->uv);
        eb_tls_drop(loop->tls);
        free(read_buffer);
        free(loop);
        return code;
    }
    *out = loop;
    return 0;
}

int eb_loop_start(struct eb_loop *loop, struct eb_mailbox *mailbox, struct eb_mail *drained)
{
    loop->drained_to = mailbox;
    loop->drained = drained;
    loop->started = true; /* before the thread can look */
    int code = uv_thread_create(&loop->thread, run_thread, loop);
    loop->started = code == 0;
    return code;
}

void eb_loop_destroy(struct eb_loop *loop)
{
    if (!loop) {
        return;
    }
    if (loop->started) {
        uv_thread_join(&loop->thread);
    } else {
        drain(loop);
        end(loop);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
    }
    int code = uv_loop_close(&loop->uv);
    assert(code == 0);
    (void)code;
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
    eb_list_push(&loop->conns, &eb_conn_links(conn)->open);
    loop->counters.connections++;
    start_ticks(loop);
}

void eb_loop_remove(struct eb_loop *loop, struct eb_conn *conn)
{
    struct eb_conn_links *links = eb_conn_links(conn);
    eb_run_queue_remove(&loop->waiting, &links->run);
    eb_list_remove(&links->marked);
    eb_list_remove(&links->open);
    give_place(loop);
    report_if_drained(loop);
}

void eb_loop_mark(struct eb_loop *loop, struct eb_conn *conn)
{
    eb_write_queue_mark(&loop->writes, conn);
}

void eb_loop_see(struct eb_loop *loop, uint64_t now_ns)
{
    loop->seen_ns = now_ns;
}

void eb_loop_wake(struct eb_loop *loop, uint64_t now_ns)
{
    if (loop->busy_since_ns == 0) {
        loop->busy_since_ns = now_ns;
    }
}

struct eb_time_slice_reader *eb_loop_reader(struct eb_loop *loop)
{
    return &loop->reader;
}

uv_buf_t eb_loop_read_buffer(struct eb_loop *loop)
{
    return uv_buf_init(loop->read_buffer, EB_TIME_SLICE_READ_MAX);
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

struct eb_tls *eb_loop_tls(const struct eb_loop *loop)
{
    return loop->tls;
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

const struct eb_memory *eb_loop_receive_memory(const struct eb_loop *loop)
{
    return &loop->receive_memory;
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

bool eb_loop_is_draining(const struct eb_loop *loop)
{
    return loop->state != LOOP_SERVING;
}

uint64_t eb_loop_now_ms(const struct eb_loop *loop)
{
    return uv_now(&loop->uv);
}

uv_loop_t *eb_loop_uv(struct eb_loop *loop)
{
    return &loop->uv;
}
