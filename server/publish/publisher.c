#include "server/publish/publisher.h"

#include "proto/list.h"

#include <assert.h>
#include <stdlib.h>

/* A snapshot on its way to a reader, then the one that it replaces on its way back. */
struct delivery {
    struct eb_mail mail;
    struct publication *publication;
    const struct eb_publisher_reader *reader;
    struct eb_snapshot *snapshot;
};

struct publication {
    struct eb_publisher *publisher;
    size_t left_count;
    struct delivery deliveries[];
};

static void release_snapshot(struct eb_snapshot *snapshot)
{
    assert(snapshot->holders > 0);
    snapshot->holders--;
    if (snapshot->holders == 0) {
        eb_snapshot_free(snapshot);
    }
}

static void on_publisher_back(struct eb_mail *mail)
{
    struct delivery *delivery = EB_CONTAINER_OF(mail, struct delivery, mail);
    struct publication *publication = delivery->publication;
    struct eb_publisher *publisher = publication->publisher;
    release_snapshot(delivery->snapshot);
    publication->left_count--;
    if (publication->left_count == 0) {
        free(publication);
    }
    publisher->delivery_count--;
    if (publisher->delivery_count == 0) {
        publisher->on_settled(publisher->context);
    }
}

/* Runs on the reader's thread. */
static void on_publisher_delivery(struct eb_mail *mail)
{
    struct delivery *delivery = EB_CONTAINER_OF(mail, struct delivery, mail);
    const struct eb_publisher_reader *reader = delivery->reader;
    delivery->snapshot = reader->swap(reader->context, delivery->snapshot);
    delivery->mail.deliver = on_publisher_back;
    eb_mailbox_post(delivery->publication->publisher->mailbox, &delivery->mail);
}

void eb_publisher_start(struct eb_publisher *publisher, struct eb_snapshot *first)
{
    publisher->current = first;
    first->holders = (unsigned)publisher->reader_count + 1;
}

bool eb_publisher_publish(struct eb_publisher *publisher, struct eb_snapshot *snapshot)
{
    size_t count = publisher->reader_count;
    struct publication *publication =
        calloc(1, sizeof *publication + count * sizeof publication->deliveries[0]);
    if (!publication) {
        return false;
    }
    publication->publisher = publisher;
    publication->left_count = count;
    snapshot->holders = (unsigned)count + 1;
    publisher->delivery_count += count;
    release_snapshot(publisher->current);
    publisher->current = snapshot;
    for (size_t i = 0; i < count; i++) {
        const struct eb_publisher_reader *reader = &publisher->readers[i];
        publication->deliveries[i] = (struct delivery){
            .mail = {.deliver = on_publisher_delivery},
            .publication = publication,
            .reader = reader,
            .snapshot = snapshot,
        };
        eb_mailbox_post(reader->mailbox, &publication->deliveries[i].mail);
    }
    return true;
}

void eb_publisher_deinit(struct eb_publisher *publisher)
{
    assert(publisher->delivery_count == 0);
    eb_snapshot_free(publisher->current);
    publisher->current = NULL;
}
