/* Stands for llama.cpp's RPC server in tests: takes one connection after the other and keeps each until it is closed.

   How it behaves is read at start from /run/rigup-test/behaviour-rpc: "crash" ends at once, "deaf" never listens. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words)
{
    const char *listen_at = "127.0.0.1";
    char behaviour[64] = "";
    int port = 50052;
    for (int at = 1; at + 1 < count; at += 2) {
        if (!strcmp(words[at], "--host"))
            listen_at = words[at + 1];
        else if (!strcmp(words[at], "--port"))
            port = atoi(words[at + 1]);
        else {
            fprintf(stderr, "stand-in: unknown option: %s\n", words[at]);
            return 1;
        }
    }
    FILE *file = fopen("/run/rigup-test/behaviour-rpc", "r");
    if (file && !fgets(behaviour, sizeof behaviour, file))
        behaviour[0] = 0;
    if (!strncmp(behaviour, "crash", 5)) {
        fprintf(stderr, "stand-in: rehearsed crash of the RPC server\n");
        return 1;
    }
    if (!strncmp(behaviour, "deaf", 4))
        for (;;)
            pause();
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int server = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!inet_pton(AF_INET, listen_at, &address.sin_addr) ||
        bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 16)) {
        fprintf(stderr, "stand-in: cannot listen at: %s\n", listen_at);
        return 1;
    }
    fprintf(stderr, "stand-in: RPC server listening on %s:%d\n", listen_at, port);
    for (;;) {
        char byte;
        int client = accept(server, NULL, NULL);
        if (client < 0)
            continue;
        while (read(client, &byte, 1) > 0)
            ;
        close(client);
    }
}
