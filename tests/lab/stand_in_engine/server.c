/* Stands for llama.cpp's llama-server in tests: same options, same endpoints, and one fixed answer.

   How it behaves is read at start from /run/rigup-test/behaviour-<ctx-size>, so that every release of a service can
   have a behaviour of its own: "crash" (ends at once), "unhealthy" (never ready), "empty" (an answer without text),
   "nonsense" (fluent words that answer nothing).
   Without that file it answers. What /run/rigup-test/says holds it says at start, as an engine would into its log.
   It must be able to read the model, and wants the API key where it is given one; and every RPC server that it is
   told of, at its start and at each answer. Words that a grammar demands it says.
   A request with "stream":true gets as many words as "max_tokens" says, ten a second, from a process of its own, which
   does not outlive the server: SIGTERM cuts what is streamed, as it does with llama.cpp. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define ANSWER "The capital of France is Paris."
#define NONSENSE "Der Der assistant assistant the the"

static const char *model = "", *listen_at = "127.0.0.1", *context = "0", *key_file = NULL, *rpc = "";
static int port = 8080;
static char key[256], behaviour[64];
#define MOST_SERVERS 16
static int servers[MOST_SERVERS], server_count = 0;

static void fail(const char *what, const char *about)
{
    fprintf(stderr, "stand-in: %s: %s\n", what, about);
    exit(1);
}

static int first_line(const char *path, char *text, int size)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (!fgets(text, size, file))
        text[0] = 0;
    text[strcspn(text, "\r\n")] = 0;
    fclose(file);
    return 1;
}

static void read_options(int count, char **words)
{
    static const char *const with_value[] = {
        "--model", "--alias", "--host", "--port", "--ctx-size", "--parallel", "--fit", "--api-key-file",
        "--n-gpu-layers", "--threads-http", "--flash-attn", "--split-mode", "--tensor-split", "--rpc", "--cache-ram",
        "--threads", NULL};
    static const char *const switches[] = {"--jinja", "--metrics", "--no-ui", "--offline", NULL};
    for (int at = 1; at < count; at++) {
        const char *word = words[at];
        int known = 0;
        for (int i = 0; switches[i]; i++)
            known |= !strcmp(word, switches[i]);
        if (known)
            continue;
        for (int i = 0; with_value[i]; i++)
            known |= !strcmp(word, with_value[i]);
        if (!known || at + 1 == count)
            fail("unknown option", word);
        const char *value = words[++at];
        if (!strcmp(word, "--model"))
            model = value;
        else if (!strcmp(word, "--host"))
            listen_at = value;
        else if (!strcmp(word, "--port"))
            port = atoi(value);
        else if (!strcmp(word, "--ctx-size"))
            context = value;
        else if (!strcmp(word, "--api-key-file"))
            key_file = value;
        else if (!strcmp(word, "--rpc"))
            rpc = value;
    }
}

/* To every RPC server, "address:port,...": each holds a part of the model, so that without one nothing goes. */
static void join_rpc_servers(void)
{
    char list[1024], *rest = list, *place;
    snprintf(list, sizeof list, "%s", rpc);
    while ((place = strsep(&rest, ",")) && *place) {
        char *colon = strrchr(place, ':');
        struct sockaddr_in address = {.sin_family = AF_INET};
        int server = socket(AF_INET, SOCK_STREAM, 0);
        if (!colon || server_count == MOST_SERVERS)
            fail("no such RPC server", place);
        *colon = 0;
        address.sin_port = htons((unsigned short)atoi(colon + 1));
        if (!inet_pton(AF_INET, place, &address.sin_addr) ||
            connect(server, (struct sockaddr *)&address, sizeof address))
            fail("cannot connect to the RPC server at", place);
        servers[server_count++] = server;
    }
}

/* As llama.cpp, which ends itself when a server is gone that it wants something of. */
static void need_rpc_servers(void)
{
    char byte;
    for (int i = 0; i < server_count; i++)
        if (recv(servers[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
            fail("lost an RPC server", rpc);
}

static void start_up(void)
{
    char path[128];
    snprintf(path, sizeof path, "/run/rigup-test/behaviour-%s", context);
    first_line(path, behaviour, sizeof behaviour);
    FILE *says = fopen("/run/rigup-test/says", "r");
    for (int byte; says && (byte = fgetc(says)) != EOF;)
        fputc(byte, stderr);
    FILE *weights = fopen(model, "rb");
    if (!weights)
        fail("cannot read the model", model);
    fclose(weights);
    if (key_file && (!first_line(key_file, key, sizeof key) || !key[0]))
        fail("no API key in", key_file);
    if (!strcmp(behaviour, "crash"))
        fail("rehearsed crash, context", context);
    join_rpc_servers();
}

static void reply(int client, const char *status, const char *body)
{
    char head[256];
    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
             strlen(body));
    if (write(client, head, strlen(head)) < 0 || write(client, body, strlen(body)) < 0)
        perror("stand-in: write");
}

/* Reads a whole request, headers and body, into `text`; returns its length, 0 for none. */
static int read_request(int client, char *text, int size)
{
    int have = 0, need = -1;
    while (have < size - 1 && (need < 0 || have < need)) {
        int got = (int)read(client, text + have, (size_t)(size - 1 - have));
        if (got <= 0)
            break;
        have += got;
        text[have] = 0;
        char *end = strstr(text, "\r\n\r\n");
        if (need < 0 && end) {
            char *length = strcasestr(text, "\r\nContent-Length:");
            need = (int)(end + 4 - text) + (length && length < end ? atoi(length + 17) : 0);
        }
    }
    return have;
}

static int may_ask(const char *request)
{
    static const char name[] = "\r\nAuthorization: ";
    char wanted[300];
    const char *header = strcasestr(request, name);
    snprintf(wanted, sizeof wanted, "Bearer %s\r\n", key);
    return !key[0] || (header && !strncmp(header + strlen(name), wanted, strlen(wanted)));
}

/* The words of a grammar that allows nothing else, {"grammar":"root ::= \"one two\""}; 0 without one. */
static int grammars_words(const char *request, char *text, size_t size)
{
    static const char begin[] = "\"grammar\":\"root ::= \\\"";
    const char *from = strstr(request, begin), *to = from ? strstr(from + strlen(begin), "\\\"") : NULL;
    if (!to || (size_t)(to - from) - strlen(begin) >= size)
        return 0;
    snprintf(text, size, "%.*s", (int)(to - from - (long)strlen(begin)), from + strlen(begin));
    return 1;
}

/* Ten words a second; the answer ends with [DONE]. */
static void stream(int client, int words)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    int good = write(client, head, sizeof head - 1) > 0;
    for (int word = 0; good && word < words; word++) {
        good = dprintf(client, "data: {\"choices\":[{\"delta\":{\"content\":\"word%d \"}}]}\n\n", word) > 0;
        usleep(100000);
    }
    if (good)
        dprintf(client, "data: [DONE]\n\n");
}

/* One event with a word, or with why the answer ends, in a chunk: who gets less sees that something is missing. */
static int send_event(int client, const char *word, const char *why)
{
    char event[400];
    int size = word ? snprintf(event, sizeof event,
                               "data: {\"choices\":[{\"delta\":{\"content\":\"%.200s\"},\"finish_reason\":null}]}\n\n", word)
                    : snprintf(event, sizeof event,
                               "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"%s\"}]}\n\ndata: [DONE]\n\n", why);
    return dprintf(client, "%x\r\n%s\r\n", size, event) > 0;
}

/* As many of the words that a grammar demands, ten a second, as llama.cpp streams them. */
static void stream_text(int client, char *text, int words)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    int good = write(client, head, sizeof head - 1) > 0;
    char *rest = text, *word, spaced[200];
    for (int said = 0; good && said < words && (word = strsep(&rest, " ")); said++) {
        snprintf(spaced, sizeof spaced, "%s%s", said ? " " : "", word);
        good = send_event(client, spaced, NULL);
        usleep(100000);
    }
    if (good && send_event(client, NULL, rest ? "length" : "stop"))
        dprintf(client, "0\r\n\r\n");
}

static void serve(int client)
{
    static char request[65536];
    char body[512], said[200];
    const char *text = !strcmp(behaviour, "empty") ? "" : !strcmp(behaviour, "nonsense") ? NONSENSE : ANSWER;
    if (!read_request(client, request, sizeof request))
        return;
    if (!strncmp(request, "GET /health ", 12)) {
        if (strcmp(behaviour, "unhealthy"))
            reply(client, "200 OK", "{\"status\":\"ok\"}");
        else
            reply(client, "503 Service Unavailable", "{\"error\":{\"message\":\"Loading model\"}}");
    } else if (strncmp(request, "POST /v1/chat/completions ", 26)) {
        reply(client, "404 Not Found", "{\"error\":{\"message\":\"File Not Found\"}}");
    } else if (!may_ask(request)) {
        reply(client, "401 Unauthorized", "{\"error\":{\"message\":\"Invalid API Key\"}}");
    } else if (strstr(request, "\"stream\":true")) {
        const char *most = strstr(request, "\"max_tokens\":");
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (grammars_words(request, said, sizeof said))
                stream_text(client, said, most ? atoi(most + 13) : 10);
            else
                stream(client, most ? atoi(most + 13) : 10);
            _exit(0);
        }
    } else {
        need_rpc_servers();
        if (grammars_words(request, said, sizeof said))
            text = said;
        snprintf(body, sizeof body,
                 "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},\"finish_reason\":\"stop\"}],"
                 "\"usage\":{\"completion_tokens\":%d},\"timings\":{\"predicted_per_second\":100.0}}",
                 text, text[0] ? 7 : 0);
        reply(client, "200 OK", body);
    }
}

int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "--version")) {
        puts("version: " STRING(BUILD_NUMBER) " (stand-in)");
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    read_options(count, words);
    start_up();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int server = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!inet_pton(AF_INET, listen_at, &address.sin_addr) ||
        bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 16))
        fail("cannot listen at", listen_at);
    fprintf(stderr, "stand-in: context %s, listening on %s:%d\n", context, listen_at, port);
    for (;;) {
        int client = accept(server, NULL, NULL);
        if (client < 0)
            continue;
        serve(client);
        close(client);
    }
}
