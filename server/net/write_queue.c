#include "server/net/write_queue.h"

#define FLUSHES_PER_LOOK 8 /* at the clock */

void eb_write_queue_init(struct eb_write_queue *queue)
{
    eb_list_init(&queue->marked);
    eb_list_init(&queue->late);
}

bool eb_write_queue_is_empty(const struct eb_write_queue *queue)
{
    return eb_list_is_empty(&queue->marked) && eb_list_is_empty(&queue->late);
}

void eb_write_queue_mark(struct eb_write_queue *queue, struct eb_conn *conn)
{
    struct eb_conn_links *links = eb_conn_links(conn);
    if (eb_list_is_empty(&links->marked)) {
        eb_list_push(&queue->marked, &links->marked);
    }
}

/* Unmarks and returns the next connection. Returns NULL if there is none. */
static struct eb_conn *pop_marked(struct eb_list *marked)
{
    struct eb_list *link = eb_list_pop(marked);
    return link ? EB_CONTAINER_OF(link, struct eb_conn_links, marked)->conn : NULL;
}

/* Moves the connections whose time slice is over from one list to the other. */
static void move_spent(struct eb_list *spent, struct eb_list *marked)
{
    struct eb_list others;
    struct eb_conn *conn;
    eb_list_init(&others);
    while ((conn = pop_marked(marked))) {
        eb_list_push(eb_conn_is_slice_over(conn) ? spent : &others, &eb_conn_links(conn)->marked);
    }
    eb_list_move(marked, &others);
}

void eb_write_queue_flush(struct eb_write_queue *queue, uint64_t deadline_ns)
{
    struct eb_list now;
    struct eb_list spent;
    struct eb_conn *conn;
    eb_list_init(&now);
    eb_list_init(&spent);
    move_spent(&spent, &queue->marked);
    eb_list_move(&now, &queue->late);
    eb_list_move(&now, &queue->marked);
    eb_list_move(&now, &spent);
    for (unsigned count = 1; (conn = pop_marked(&now)); count++) {
        eb_conn_flush(conn);
        if (count % FLUSHES_PER_LOOK == 0 && uv_hrtime() >= deadline_ns) {
            break;
        }
    }
    eb_list_move(&queue->late, &now);
}
