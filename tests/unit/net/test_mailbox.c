#include "proto/net/mailbox.h"

#include "proto/list.h"
#include "tests/lib/test_group.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define THREADS 4
#define MAILS_EACH 5000

struct numbered_mail {
    struct eb_mail mail;
    struct receiver *receiver;
    int sender;
    int number;
};

struct receiver {
    uv_loop_t loop;
    struct eb_mailbox mailbox;
    int next_number[THREADS]; /* per sender */
    int delivered;
    int out_of_order;
};

struct sender {
    struct receiver *receiver;
    int index;
    struct numbered_mail mails[MAILS_EACH];
};

static struct sender senders[THREADS];

static void on_delivery(struct eb_mail *mail)
{
    struct numbered_mail *numbered = EB_CONTAINER_OF(mail, struct numbered_mail, mail);
    struct receiver *receiver = numbered->receiver;
    if (receiver->next_number[numbered->sender]++ != numbered->number) {
        receiver->out_of_order++;
    }
    if (++receiver->delivered == THREADS * MAILS_EACH) {
        eb_mailbox_close(&receiver->mailbox);
    }
}

static void send_mails(void *context)
{
    struct sender *sender = context;
    for (int i = 0; i < MAILS_EACH; i++) {
        struct numbered_mail *mail = &sender->mails[i];
        *mail =
            (struct numbered_mail){{.deliver = on_delivery}, sender->receiver, sender->index, i};
        eb_mailbox_post(&sender->receiver->mailbox, &mail->mail);
    }
}

static void receive_all(bool has_reader)
{
    struct receiver receiver = {0};
    uv_thread_t threads[THREADS];
    assert_int_equal(uv_loop_init(&receiver.loop), 0);
    assert_int_equal(eb_mailbox_open(&receiver.mailbox, &receiver.loop), 0);
    if (has_reader) {
        eb_mailbox_set_reader(&receiver.mailbox);
    }
    for (int i = 0; i < THREADS; i++) {
        senders[i].receiver = &receiver;
        senders[i].index = i;
        assert_int_equal(uv_thread_create(&threads[i], send_mails, &senders[i]), 0);
    }
    uv_run(&receiver.loop, UV_RUN_DEFAULT);
    for (int i = 0; i < THREADS; i++) {
        uv_thread_join(&threads[i]);
    }
    assert_int_equal(receiver.delivered, THREADS * MAILS_EACH);
    assert_int_equal(receiver.out_of_order, 0);
    assert_int_equal(uv_loop_close(&receiver.loop), 0);
}

static void delivers_every_mail_once_in_each_senders_order(void **state)
{
    (void)state;
    receive_all(false);
}

static void delivers_others_mails_to_a_reader_too(void **state)
{
    (void)state;
    receive_all(true);
}

static int count_only;

static void count_delivery(struct eb_mail *mail)
{
    (void)mail;
    count_only++;
}

static void delivers_what_is_left_when_closed(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct eb_mailbox mailbox;
    struct eb_mail mails[2] = {{.deliver = count_delivery}, {.deliver = count_delivery}};
    count_only = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(eb_mailbox_open(&mailbox, &loop), 0);
    eb_mailbox_post(&mailbox, &mails[0]);
    eb_mailbox_post(&mailbox, &mails[1]);
    eb_mailbox_close(&mailbox);
    assert_int_equal(count_only, 2);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(count_only, 2);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A wake-up would cost a system call and a loop iteration for each call that a callback makes. */
static void wakes_nobody_for_the_readers_own_mails(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct eb_mailbox mailbox;
    struct eb_mail own = {.deliver = count_delivery};
    count_only = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(eb_mailbox_open(&mailbox, &loop), 0);
    eb_mailbox_set_reader(&mailbox);
    assert_true(eb_mailbox_is_empty(&mailbox));
    eb_mailbox_post(&mailbox, &own);
    assert_false(eb_mailbox_is_empty(&mailbox));
    struct pollfd wakeups = {.fd = uv_backend_fd(&loop), .events = POLLIN};
    assert_int_equal(uv_run(&loop, UV_RUN_NOWAIT), 1);
    assert_int_equal(poll(&wakeups, 1, 0), 0);
    assert_int_equal(count_only, 0);
    eb_mailbox_deliver(&mailbox);
    assert_int_equal(count_only, 1);
    assert_true(eb_mailbox_is_empty(&mailbox));
    eb_mailbox_close(&mailbox);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

EB_TEST_GROUP(mailbox)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delivers_every_mail_once_in_each_senders_order),
        cmocka_unit_test(delivers_others_mails_to_a_reader_too),
        cmocka_unit_test(delivers_what_is_left_when_closed),
        cmocka_unit_test(wakes_nobody_for_the_readers_own_mails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
