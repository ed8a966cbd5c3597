#include "server/net/write_queue.h"

void eb_write_queue_init(struct eb_write_queue *queue)
{
    eb_list_init(&queue->marked);
}

bool eb_write_queue_is_empty(const struct eb_write_queue *queue)
{
    return eb_list_is_empty(&queue->marked);
}

void eb_write_queue_mark(struct eb_write_queue *queue, struct eb_conn *conn)
{
    struct eb_conn_links *links = eb_conn_links(conn);
    if (eb_list_is_empty(&links->marked)) {
        eb_list_push(&queue->marked, &links->marked);
    }
}

/* The next connection, unmarked; NULL: there is none. */
static struct eb_conn *pop_marked(struct eb_list *marked)
{
    struct eb_list *link = eb_list_pop(marked);
    return link ? EB_CONTAINER_OF(link, struct eb_conn_links, marked)->conn : NULL;
}

void eb_write_queue_flush(struct eb_write_queue *queue)
{
    struct eb_list now;
    struct eb_list last;
    struct eb_conn *conn;
    eb_list_init(&now);
    eb_list_init(&last);
    eb_list_move(&now, &queue->marked);
    while ((conn = pop_marked(&now))) {
        if (eb_conn_is_turn_over(conn)) {
            eb_list_push(&last, &eb_conn_links(conn)->marked);
        } else {
            eb_conn_flush(conn);
        }
    }
    while ((conn = pop_marked(&last))) {
        eb_conn_flush(conn);
    }
}

void eb_write_queue_flush_one(struct eb_write_queue *queue, struct eb_conn *conn)
{
    (void)queue;
    eb_list_remove(&eb_conn_links(conn)->marked);
    eb_conn_flush(conn);
}
