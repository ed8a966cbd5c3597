/* An intrusive doubly linked list: a struct has one link for each list that it may be in. The head
 * is a link too, so the list is a ring.
 * Thread: one at a time. Memory: none of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Evaluates to the struct of `type` whose `member` is at `pointer`. */
#define EB_CONTAINER_OF(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct eb_list {
    struct eb_list *next;
    struct eb_list *previous;
};

/* Initialises an empty list, or a link that is in no list. */
static inline void eb_list_init(struct eb_list *list)
{
    list->next = list;
    list->previous = list;
}

/* Returns whether a list is empty, or whether a link is in no list. */
static inline bool eb_list_is_empty(const struct eb_list *list)
{
    return list->next == list;
}

/* Appends a link that is in no list. */
static inline void eb_list_push(struct eb_list *list, struct eb_list *link)
{
    link->next = list;
    link->previous = list->previous;
    list->previous->next = link;
    list->previous = link;
}

/* Puts a link that is in no list in front of all others. */
static inline void eb_list_push_front(struct eb_list *list, struct eb_list *link)
{
    eb_list_push(list->next, link);
}

/* Removes a link from its list. Does nothing if the link is in no list. */
static inline void eb_list_remove(struct eb_list *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    eb_list_init(link);
}

/* Removes and returns the first link. Returns NULL if the list is empty. */
static inline struct eb_list *eb_list_pop(struct eb_list *list)
{
    struct eb_list *first = list->next;
    if (first == list) {
        return NULL;
    }
    eb_list_remove(first);
    return first;
}

/* Moves all links of `from`, in their order, to the end of `list`. */
static inline void eb_list_move(struct eb_list *list, struct eb_list *from)
{
    if (eb_list_is_empty(from)) {
        return;
    }
    from->next->previous = list->previous;
    list->previous->next = from->next;
    from->previous->next = list;
    list->previous = from->previous;
    eb_list_init(from);
}
