#include "server/net/conn_line.h"

void eb_conn_line_init(struct eb_conn_line *line)
{
    *line = (struct eb_conn_line){.end = &line->first};
}

bool eb_conn_line_is_empty(const struct eb_conn_line *line)
{
    return !line->marked && !line->first;
}

void eb_conn_line_mark(struct eb_conn_line *line, struct eb_conn *conn)
{
    struct eb_conn_links *links = eb_conn_links(conn);
    if (!links->marked) {
        links->marked = true;
        links->next_marked = line->marked;
        line->marked = conn;
    }
}

static void unmark(struct eb_conn_line *line, struct eb_conn *conn)
{
    struct eb_conn **at = &line->marked;
    while (*at != conn) {
        at = &eb_conn_links(*at)->next_marked;
    }
    *at = eb_conn_links(conn)->next_marked;
}

void eb_conn_line_join(struct eb_conn_line *line, struct eb_conn *conn)
{
    struct eb_conn_links *links = eb_conn_links(conn);
    if (!links->in_line) {
        links->in_line = true;
        *line->end = conn;
        line->end = &links->next_in_line;
    }
}

void eb_conn_line_leave(struct eb_conn_line *line, struct eb_conn *conn)
{
    struct eb_conn_links *links = eb_conn_links(conn);
    struct eb_conn **at = &line->first;
    while (*at != conn) {
        at = &eb_conn_links(*at)->next_in_line;
    }
    *at = links->next_in_line;
    if (!*at) {
        line->end = at;
    }
    links->next_in_line = NULL;
    links->in_line = false;
}

void eb_conn_line_remove(struct eb_conn_line *line, struct eb_conn *conn)
{
    const struct eb_conn_links *links = eb_conn_links(conn);
    if (links->marked) {
        unmark(line, conn);
    }
    if (links->in_line) {
        eb_conn_line_leave(line, conn);
    }
}

void eb_conn_line_flush(struct eb_conn_line *line)
{
    struct eb_conn *late = NULL;
    struct eb_conn *next;
    struct eb_conn *conn = line->marked;
    line->marked = NULL;
    for (; conn; conn = next) {
        struct eb_conn_links *links = eb_conn_links(conn);
        next = links->next_marked;
        if (eb_conn_is_turn_over(conn)) {
            links->next_marked = late;
            late = conn;
        } else {
            links->marked = false;
            eb_conn_flush(conn);
        }
    }
    for (conn = late; conn; conn = next) {
        next = eb_conn_links(conn)->next_marked;
        eb_conn_links(conn)->marked = false;
        eb_conn_flush(conn);
    }
}
