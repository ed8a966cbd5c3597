/* Many TLS clients that connect to a server at the same time:
 *
 *     embag-tls-storm PORT COUNT
 *
 * Prepares COUNT clients with their first messages, prints "ready" and waits for a line on standard
 * input. Then connects all clients to the port on the loopback address, and completes the handshake
 * and the start of HTTP/2 of each. A client whose connection fails does not try again. Prints one
 * JSON object: the number of clients that were served and that failed, and the median and the
 * longest time of those that were served, in seconds. Ends the connections when standard input
 * ends. The server's certificate is not verified, which saves time for the server. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 100000
#define EVENTS_MAX 64
#define SECONDS_MAX 60 /* time after which clients that are not served count as failed */
#define FILES_RESERVED 64

/* The bytes with which a client starts HTTP/2. */
static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

struct client {
    SSL *ssl;
    int socket;
    bool is_over;
    bool has_greeted;
};

struct storm {
    struct client *clients; /* [count] */
    double *seconds;        /* [count] of the clients that were served */
    size_t count;
    size_t served_count;
    size_t failed_count;
    int epoll;
    double begun_s;
};

static double read_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static SSL_CTX *create_context(void)
{
    static const unsigned char protocols[] = {2, 'h', '2'};
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_set_alpn_protos(context, protocols, sizeof protocols) != 0) {
        errx(1, "OpenSSL cannot be used");
    }
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    return context;
}

/* Makes the client's first message, which stays in its output until it is connected. */
static void prepare_client(struct client *client, SSL_CTX *context)
{
    client->ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem());
    BIO *out = BIO_new(BIO_s_mem());
    if (!client->ssl || !in || !out) {
        errx(1, "out of memory");
    }
    SSL_set_bio(client->ssl, in, out);
    SSL_set_connect_state(client->ssl);
    if (SSL_get_error(client->ssl, SSL_do_handshake(client->ssl)) != SSL_ERROR_WANT_READ) {
        errx(1, "OpenSSL makes no first message");
    }
}

static void end_client(struct storm *storm, struct client *client, bool is_served)
{
    client->is_over = true;
    (void)epoll_ctl(storm->epoll, EPOLL_CTL_DEL, client->socket, NULL);
    if (is_served) {
        storm->seconds[storm->served_count++] = read_clock_s() - storm->begun_s;
    } else {
        storm->failed_count++;
    }
}

/* Connects the client and sends its first message. */
static void connect_client(
    struct storm *storm, struct client *client, const struct sockaddr_in *address)
{
    char *hello;
    long hello_bytes = BIO_get_mem_data(SSL_get_wbio(client->ssl), &hello);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    client->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->socket < 0) {
        err(1, "socket");
    }
    if (connect(client->socket, (const struct sockaddr *)address, sizeof *address) != 0 ||
        send(client->socket, hello, (size_t)hello_bytes, MSG_NOSIGNAL) != hello_bytes) {
        end_client(storm, client, false);
        return;
    }
    if (fcntl(client->socket, F_SETFL, O_NONBLOCK) != 0 ||
        SSL_set_fd(client->ssl, client->socket) != 1 ||
        epoll_ctl(storm->epoll, EPOLL_CTL_ADD, client->socket, &event) != 0) {
        err(1, "a socket cannot be used");
    }
}

/* Goes on with a client whose socket is readable. */
static void serve_client(struct storm *storm, struct client *client)
{
    char bytes[256];
    int rc = SSL_do_handshake(client->ssl);
    if (rc == 1 && !client->has_greeted) {
        client->has_greeted = true;
        rc = SSL_write(client->ssl, greeting, sizeof greeting - 1);
    }
    if (rc > 0) {
        rc = SSL_read(client->ssl, bytes, sizeof bytes);
    }
    if (rc > 0) {
        end_client(storm, client, true);
    } else if (SSL_get_error(client->ssl, rc) != SSL_ERROR_WANT_READ) {
        end_client(storm, client, false);
    }
}

static void run_storm(struct storm *storm, const struct sockaddr_in *address)
{
    struct epoll_event events[EVENTS_MAX];
    storm->begun_s = read_clock_s();
    for (size_t i = 0; i < storm->count; i++) {
        connect_client(storm, &storm->clients[i], address);
    }
    while (storm->served_count + storm->failed_count < storm->count &&
           read_clock_s() - storm->begun_s < SECONDS_MAX) {
        int count = epoll_wait(storm->epoll, events, EVENTS_MAX, 1000);
        if (count < 0 && errno != EINTR) {
            err(1, "epoll_wait");
        }
        for (int i = 0; i < count; i++) {
            serve_client(storm, events[i].data.ptr);
        }
    }
}

static int compare_seconds(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_storm(struct storm *storm)
{
    size_t count = storm->served_count;
    qsort(storm->seconds, count, sizeof *storm->seconds, compare_seconds);
    printf("{\"served\": %zu, \"failed\": %zu, \"p50_s\": %.4f, \"max_s\": %.4f}\n", count,
        storm->count - count, count > 0 ? storm->seconds[count / 2] : 0,
        count > 0 ? storm->seconds[count - 1] : 0);
    (void)fflush(stdout);
}

static void raise_file_limit(size_t count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        err(1, "getrlimit");
    }
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < count + FILES_RESERVED || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        errx(1, "%zu connections need a higher limit of open files (ulimit -n)", count);
    }
}

int main(int argc, char **argv)
{
    char line[8];
    long port = argc == 3 ? atol(argv[1]) : 0;
    long count = argc == 3 ? atol(argv[2]) : 0;
    if (port < 1 || port > UINT16_MAX || count < 1 || count > CLIENTS_MAX) {
        errx(1, "usage: embag-tls-storm PORT COUNT, where COUNT is 1 to %d", CLIENTS_MAX);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    raise_file_limit((size_t)count);
    struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct storm storm = {.clients = calloc((size_t)count, sizeof *storm.clients),
        .seconds = calloc((size_t)count, sizeof *storm.seconds),
        .count = (size_t)count,
        .epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (!storm.clients || !storm.seconds || storm.epoll < 0) {
        errx(1, "out of memory or files");
    }
    SSL_CTX *context = create_context();
    for (size_t i = 0; i < storm.count; i++) {
        prepare_client(&storm.clients[i], context);
    }
    puts("ready");
    (void)fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) {
        return 1;
    }
    run_storm(&storm, &address);
    print_storm(&storm);
    while (fgets(line, sizeof line, stdin)) {
    }
    return 0;
}
