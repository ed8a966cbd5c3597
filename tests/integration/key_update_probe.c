/* A TLS 1.3 client that updates its keys again and again and sends nothing else, which no stock
 * client does. Usage: PORT CA COUNT. Prints how many updates were written before the server closed
 * the connection. Exit status 1 if the client could not connect, or if all updates were accepted;
 * otherwise 0. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The bytes with which a client starts HTTP/2. */
static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

/* Returns a connected socket, or a negative number if there is none. */
static int dial(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(port)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer >= 0 && connect(peer, (struct sockaddr *)&address, sizeof address) != 0) {
        close(peer);
        return -1;
    }
    return peer;
}

static SSL_CTX *create_context(const char *ca)
{
    static const unsigned char protocols[] = {2, 'h', '2'};
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context && (SSL_CTX_load_verify_file(context, ca) != 1 ||
                       SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
                       SSL_CTX_set_alpn_protos(context, protocols, sizeof protocols) != 0)) {
        SSL_CTX_free(context);
        return NULL;
    }
    return context;
}

/* Returns how many updates the server accepted, as far as the socket shows. */
static long flood(SSL *client, long count)
{
    long done = 0;
    while (done < count && SSL_key_update(client, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
           SSL_do_handshake(client) == 1) {
        done++;
    }
    return done;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: embag-key-update-probe PORT CA COUNT\n");
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    long count = atol(argv[3]);
    SSL_CTX *context = create_context(argv[2]);
    SSL *client = context ? SSL_new(context) : NULL;
    int peer = dial(argv[1]);
    long done = -1;
    if (client && peer >= 0 && SSL_set_fd(client, peer) == 1 && SSL_connect(client) == 1 &&
        SSL_write(client, greeting, sizeof greeting - 1) > 0) {
        done = flood(client, count);
        printf("%ld\n", done);
    }
    SSL_free(client);
    SSL_CTX_free(context);
    if (peer >= 0) {
        close(peer);
    }
    return done >= 0 && done < count ? 0 : 1;
}
