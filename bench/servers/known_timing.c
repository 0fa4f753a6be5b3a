/* The server of known_timing.py in C, for what that one is too slow for: one core of it writes several times the tokens,
 * so that at 512 streams and more it is still the client that is measured.
 *
 * cc -O2 -o known_timing known_timing.c; ./known_timing [--port 0] [--ttft-ms 50] [--itl-ms 10] [--tokens 64] [--core N]
 *
 * Prints one JSON line with its URL. GET /truth gives percentiles (ms) of what it really did since the last /reset:
 * TTFT from the arrival of a request in the kernel (SO_TIMESTAMPNS; else its read) to the write of the first token, ITL
 * between writes. Ends when its stdin closes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 65536, BUFFER = 65536, WORST_KEPT = 4000000, EVENTS = 1024 };

static const char COMMON[] =
    "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"known-timing\",\"choices\":[";
static const char HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    "transfer-encoding: chunked\r\n\r\n";

typedef struct {
    int fd;
    char *buffer;
    size_t held;
    int64_t arrived_ns; /* of the last bytes read */
    int64_t received_ns, last_ns, due_ns;
    int left; /* tokens still to write; 0: no answer under way */
    int place; /* in the heap, -1: not in it */
} Connection;

typedef struct {
    uint32_t *us;
    size_t count;
} Kept;

static Connection *by_fd[MOST_CONNECTIONS];
static Connection *heap[MOST_CONNECTIONS];
static int heap_size;
static Kept ttft, itl;
static long requests, peak, active, connections, blocked;
static int64_t ttft_ns = 50000000, itl_ns = 10000000;
static int tokens = 64, poller;
static char first_part[2048], token_part[1024], last_part[4096], only_part[4096];
static size_t first_len, token_len, last_len, only_len;

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void keep(Kept *kept, int64_t ns) {
    if (!kept->us) kept->us = malloc(sizeof(uint32_t) * WORST_KEPT);
    if (kept->us && kept->count < WORST_KEPT) kept->us[kept->count++] = ns > 0 ? (uint32_t)(ns / 1000) : 0;
}

/* ---- the next to write: a binary heap by due time ---- */

static void put(int at, Connection *c) {
    heap[at] = c;
    c->place = at;
}

static void sift_up(int at) {
    Connection *c = heap[at];
    while (at > 0 && heap[(at - 1) / 2]->due_ns > c->due_ns) {
        put(at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(at, c);
}

static void sift_down(int at) {
    Connection *c = heap[at];
    for (;;) {
        int child = 2 * at + 1;
        if (child >= heap_size) break;
        if (child + 1 < heap_size && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= c->due_ns) break;
        put(at, heap[child]);
        at = child;
    }
    put(at, c);
}

static void heap_add(Connection *c) {
    put(heap_size, c);
    sift_up(heap_size++);
}

static void heap_remove(Connection *c) {
    int at = c->place;
    if (at < 0) return;
    c->place = -1;
    Connection *last = heap[--heap_size];
    if (last == c) return;
    put(at, last);
    sift_up(at);
    sift_down(last->place);
}

/* ---- answers ---- */

static size_t chunk(char *to, const char *payload) {
    char event[1024];
    int length = snprintf(event, sizeof event, "data: %s\n\n", payload);
    return (size_t)sprintf(to, "%x\r\n%s\r\n", (unsigned)length, event);
}

static size_t delta(char *to, const char *inner, const char *finish) {
    char payload[900];
    snprintf(payload, sizeof payload, "%s{\"index\":0,\"delta\":%s,\"logprobs\":null,\"finish_reason\":%s}],\"usage\":null}",
             COMMON, inner, finish);
    return chunk(to, payload);
}

static void prepare(void) {
    const char *token = "{\"content\":\" token\"}";
    char payload[900], role[1024], end[2048];
    size_t role_len = delta(role, "{\"role\":\"assistant\",\"content\":\"\"}", "null");
    token_len = delta(token_part, token, "null");
    snprintf(payload, sizeof payload,
             "%s],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":%d,\"total_tokens\":%d}}", COMMON, tokens,
             tokens + 16);
    size_t end_len = chunk(end, payload);
    end_len += chunk(end + end_len, "[DONE]");
    end_len += (size_t)sprintf(end + end_len, "0\r\n\r\n");
    last_len = delta(last_part, token, "\"length\"");
    memcpy(last_part + last_len, end, end_len);
    last_len += end_len;
    first_len = (size_t)sprintf(first_part, "%s%.*s", HEAD, (int)role_len, role);
    memcpy(only_part, first_part, first_len);
    memcpy(only_part + first_len, last_part, last_len);
    only_len = first_len + last_len;
    memcpy(first_part + first_len, token_part, token_len);
    first_len += token_len;
}

static void drop(Connection *c) {
    if (c->left) active--;
    heap_remove(c);
    by_fd[c->fd] = NULL;
    close(c->fd);
    free(c->buffer);
    free(c);
}

static int say(Connection *c, const char *bytes, size_t length) {
    if (send(c->fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length) return 1;
    blocked++; /* a client that takes nothing for 2 MiB: not one to measure */
    drop(c);
    return 0;
}

static void write_token(Connection *c) {
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    int first = c->last_ns == 0;
    if (first) keep(&ttft, now - c->received_ns);
    else keep(&itl, now - c->last_ns);
    c->last_ns = now;
    int last = --c->left == 0;
    if (last) {
        active--;
        requests++;
        heap_remove(c);
    } else {
        c->due_ns += itl_ns;
        sift_down(c->place);
    }
    if (first) say(c, last ? only_part : first_part, last ? only_len : first_len);
    else say(c, last ? last_part : token_part, last ? last_len : token_len);
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int percentiles(char *to, Kept *kept) {
    static const double levels[] = {0.5, 0.95, 0.99};
    static const char *names[] = {"p50", "p95", "p99"};
    int length = sprintf(to, "{");
    if (kept->count) qsort(kept->us, kept->count, sizeof(uint32_t), by_size);
    for (int i = 0; i < 3; i++) {
        if (!kept->count) {
            length += sprintf(to + length, "\"%s\":null,", names[i]);
            continue;
        }
        double place = levels[i] * (double)kept->count;
        size_t at = (size_t)place;
        if ((double)at == place && at > 0) at--;
        length += sprintf(to + length, "\"%s\":%.3f,", names[i], kept->us[at] / 1000.0);
    }
    return length + sprintf(to + length, "\"count\":%.1f}", (double)kept->count);
}

static void answer(Connection *c, const char *body) {
    char out[4096];
    int length = snprintf(out, sizeof out,
                          "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                          strlen(body), body);
    say(c, out, (size_t)length);
}

static void serve(Connection *c, const char *line) {
    char body[2048];
    if (strstr(line, "/chat/completions")) {
        if (c->left) return;
        if (++active > peak) peak = active;
        c->received_ns = c->arrived_ns;
        c->last_ns = 0;
        c->left = tokens;
        c->due_ns = c->received_ns + ttft_ns;
        heap_add(c);
    } else if (strstr(line, "/truth")) {
        int length = sprintf(body, "{\"requests\":%ld,\"peak_streams\":%ld,\"connections\":%ld,\"blocked\":%ld,\"ttft_ms\":",
                             requests, peak, connections, blocked);
        length += percentiles(body + length, &ttft);
        length += sprintf(body + length, ",\"itl_ms\":");
        length += percentiles(body + length, &itl);
        sprintf(body + length, "}");
        answer(c, body);
    } else if (strstr(line, "/reset")) {
        ttft.count = itl.count = 0;
        requests = connections = blocked = 0;
        peak = active;
        answer(c, "{}");
    } else if (strstr(line, "/models")) {
        answer(c, "{\"object\":\"list\",\"data\":[{\"id\":\"known-timing\",\"object\":\"model\",\"owned_by\":\"bench\"}]}");
    } else {
        answer(c, "{\"status\":\"ok\"}");
    }
}

static void parse(Connection *c) {
    int fd = c->fd;
    while (by_fd[fd] == c) {
        c->buffer[c->held] = 0;
        char *end = strstr(c->buffer, "\r\n\r\n");
        if (!end) return;
        char *field = strcasestr(c->buffer, "content-length:");
        size_t body = field && field < end ? strtoul(field + 15, NULL, 10) : 0;
        size_t whole = (size_t)(end + 4 - c->buffer) + body;
        if (whole > BUFFER) {
            drop(c);
            return;
        }
        if (c->held < whole) return;
        *strchr(c->buffer, '\r') = 0;
        c->held -= whole;
        char line[1024];
        snprintf(line, sizeof line, "%s", c->buffer);
        memmove(c->buffer, c->buffer + whole, c->held);
        serve(c, line);
    }
}

static void read_some(Connection *c) {
    char control[256];
    struct iovec into = {c->buffer + c->held, BUFFER - c->held};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = into.iov_len ? recvmsg(c->fd, &message, 0) : 0;
    if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        drop(c);
        return;
    }
    c->arrived_ns = clock_ns(CLOCK_MONOTONIC);
    for (struct cmsghdr *m = CMSG_FIRSTHDR(&message); m; m = CMSG_NXTHDR(&message, m))
        if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(m), sizeof t);
            int64_t ago = clock_ns(CLOCK_REALTIME) - ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec);
            if (ago > 0 && ago < 60000000000) c->arrived_ns -= ago;
        }
    c->held += (size_t)got;
    parse(c);
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        Connection *c = fd < MOST_CONNECTIONS ? calloc(1, sizeof *c) : NULL;
        if (!c || !(c->buffer = malloc(BUFFER + 1))) {
            free(c);
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        c->fd = fd;
        c->place = -1;
        by_fd[fd] = c;
        connections++;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int count, char **given) {
    int port = 0, core = -1, one = 1;
    for (int i = 1; i + 1 < count; i += 2) {
        double value = atof(given[i + 1]);
        if (!strcmp(given[i], "--port")) port = (int)value;
        else if (!strcmp(given[i], "--ttft-ms")) ttft_ns = (int64_t)(value * 1e6);
        else if (!strcmp(given[i], "--itl-ms")) itl_ns = (int64_t)(value * 1e6);
        else if (!strcmp(given[i], "--tokens")) tokens = value >= 1 ? (int)value : 1;
        else if (!strcmp(given[i], "--core")) core = (int)value;
        else return fprintf(stderr, "unknown option %s\n", given[i]), 2;
    }
    if (core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    struct rlimit files = {MOST_CONNECTIONS, MOST_CONNECTIONS};
    setrlimit(RLIMIT_NOFILE, &files);
    prepare();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) return perror("listen"), 1;
    getsockname(listener, (struct sockaddr *)&at, &length);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ended = {.events = EPOLLIN, .data.fd = 0};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &ended);
    printf("{\"url\": \"http://127.0.0.1:%d\", \"pid\": %d}\n", ntohs(at.sin_port), (int)getpid());
    fflush(stdout);
    static struct epoll_event events[EVENTS];
    for (;;) {
        struct timespec wait = {1, 0};
        if (heap_size) {
            int64_t left = heap[0]->due_ns - clock_ns(CLOCK_MONOTONIC);
            if (left < 0) left = 0;
            if (left < 1000000000) wait = (struct timespec){0, left};
        }
        int ready = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            char rest[256];
            if (fd == listener) accept_all(listener);
            else if (fd == 0) {
                if (read(0, rest, sizeof rest) <= 0) return 0;
            } else if (by_fd[fd]) read_some(by_fd[fd]);
        }
        /* what is due by now, but never so much that requests wait to be read */
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        for (int written = 0; heap_size && heap[0]->due_ns <= now && written < 256; written++) write_token(heap[0]);
    }
}
