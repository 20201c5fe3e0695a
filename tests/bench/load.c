/* A light HTTP client for benchmarks: one request under way on each connection, in one thread.

   It takes a few microseconds of CPU time per request, because on a machine with few cores the client
   uses the cores of the servers. Every response must have the status 200 and a Content-Length.

       load PORT SECONDS MAX_REQUESTS FIRST_NUMBER < requests

   Input: the number of connections; for each of them the number of its requests, and each request as
   its length and its bytes. A connection sends its requests in turn, again and again. Ten # in a
   request become the next number, from FIRST_NUMBER on.

   Output, one line: requests, seconds, CPU seconds of this process, p50 and p99 in microseconds, and
   the p50 of each request of the first connection. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, EVENTS = 256, DIGITS = 10 };

struct request {
  char *bytes;
  size_t size;
  char *number; /* the place of the ten #, or NULL */
};

struct connection {
  int fd;
  struct request *requests;
  size_t count, next;
  double sent_at;
  char buffer[BUFFER];
  size_t received; /* of the head */
  long left;       /* bytes of the body that are still to come, -1 while the head is not complete */
};

struct latency {
  float seconds;
  unsigned slot; /* request of the first connection, or -1u */
};

static struct latency *latencies;
static size_t done, room, numbers;

static void fail(const char *problem) {
  fprintf(stderr, "load: %s\n", problem);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static size_t read_number(void) {
  size_t value;
  if (scanf("%zu", &value) != 1) fail("a number is missing in the input");
  getchar();
  return value;
}

static void read_requests(struct connection *c) {
  c->count = read_number();
  c->requests = calloc(c->count, sizeof *c->requests);
  for (size_t i = 0; i < c->count; i++) {
    struct request *r = &c->requests[i];
    r->size = read_number();
    r->bytes = calloc(r->size + 1, 1);
    if (fread(r->bytes, 1, r->size, stdin) != r->size) fail("the input ends within a request");
    r->number = strstr(r->bytes, "##########");
  }
}

static void open_connection(struct connection *c, int port, int epoll) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
  int on = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}

static void send_next(struct connection *c) {
  struct request *r = &c->requests[c->next];
  if (r->number) {
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%010zu", numbers++);
    memcpy(r->number, text, DIGITS);
  }
  c->received = 0;
  c->left = -1;
  c->sent_at = now();
  if (send(c->fd, r->bytes, r->size, 0) != (ssize_t)r->size) fail("the server takes no requests");
}

/* Read what has come; return 1 at the end of the response. */
static int receive(struct connection *c) {
  ssize_t size = recv(c->fd, c->buffer + c->received, BUFFER - 1 - c->received, 0);
  if (size <= 0) fail("the server closed a connection");
  if (c->left >= 0) {
    c->left -= size;
    return c->left == 0;
  }
  c->received += size;
  c->buffer[c->received] = 0;
  char *end = strstr(c->buffer, "\r\n\r\n");
  if (!end) {
    if (c->received == BUFFER - 1) fail("the head of a response is too long");
    return 0;
  }
  if (strncmp(c->buffer, "HTTP/1.1 200", 12)) fail(c->buffer);
  char *length = strcasestr(c->buffer, "\r\ncontent-length:");
  if (!length || length > end) fail("a response has no length");
  c->left = atol(length + 17) - (long)(c->received - (end + 4 - c->buffer));
  c->received = 0;
  return c->left == 0;
}

static void note(struct connection *c, struct connection *first, double at) {
  if (done == room) {
    room = room ? 2 * room : 1 << 16;
    latencies = realloc(latencies, room * sizeof *latencies);
    if (!latencies) fail("out of memory");
  }
  latencies[done].seconds = at - c->sent_at;
  latencies[done++].slot = c == first ? (unsigned)c->next : -1u;
}

static int by_seconds(const void *a, const void *b) {
  float x = ((const struct latency *)a)->seconds, y = ((const struct latency *)b)->seconds;
  return (x > y) - (x < y);
}

static double slot_median(unsigned slot) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < done; i++) count += latencies[i].slot == slot;
  for (size_t i = 0; i < done; i++)
    if (latencies[i].slot == slot && ++at > count / 2) return latencies[i].seconds;
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 5) fail("usage: load PORT SECONDS MAX_REQUESTS FIRST_NUMBER < requests");
  double seconds = atof(argv[2]);
  size_t most = strtoul(argv[3], NULL, 10), count = read_number(), sent = 0, under_way = 0;
  if (!count) fail("no connections");
  numbers = strtoul(argv[4], NULL, 10);
  struct connection *connections = calloc(count, sizeof *connections);
  int epoll = epoll_create1(0);
  for (size_t i = 0; i < count; i++) {
    read_requests(&connections[i]);
    open_connection(&connections[i], atoi(argv[1]), epoll);
  }
  double cpu = cpu_seconds(), begun = now(), end = begun + seconds;
  for (; sent < count; sent++, under_way++) send_next(&connections[sent]);
  while (under_way) {
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(epoll, events, EVENTS, 10000);
    if (ready <= 0) fail("the server did not answer for ten seconds");
    for (int i = 0; i < ready; i++) {
      struct connection *c = events[i].data.ptr;
      if (!receive(c)) continue;
      double at = now();
      note(c, connections, at);
      c->next = (c->next + 1) % c->count;
      if (at < end && sent < most) {
        send_next(c);
        sent++;
      } else {
        under_way--;
      }
    }
  }
  double elapsed = now() - begun;
  cpu = cpu_seconds() - cpu;
  qsort(latencies, done, sizeof *latencies, by_seconds);
  printf("%zu %.6f %.6f %.1f %.1f", done, elapsed, cpu, latencies[done / 2].seconds * 1e6,
         latencies[done * 99 / 100].seconds * 1e6);
  for (size_t slot = 0; slot < connections[0].count; slot++) printf(" %.1f", slot_median(slot) * 1e6);
  puts("");
  return 0;
}
