// load.c - closed-loop HTTP/1.1 load generator for chat completions, one epoll thread, no dependencies.
//   ./load PORT PATH CONNS SECONDS BODYFILE [EXPECT_TOKENS] ["Header: value" ...]
// Prints one JSON line. Latency = request sent -> last byte; ttft = request sent -> first non-empty
// "content". A response counts as ok only with status 200, a complete body and (if EXPECT_TOKENS > 0) that
// many non-empty "content" events in it. The first request on every connection is warm-up and is not counted.
// 503 and 429 with a Retry-After are "shed": counted by themselves, with their own latencies. With LOAD_HEED=1 in the
// environment a connection that was shed waits as long as it was told, as the SDKs do; else it asks again at once.
// "gap": the longest time between two network reads that brought content, of each answer, the first content aside: their
// p50, p99 and the longest of all.
// LOAD_STAGGER_US: the time between the first requests of two connections, 700 if nothing is said.
// With LOAD_WARM=SECONDS what is asked in the first seconds is not counted, instead of every connection's first request.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CARRY 32
#define RB 262144

typedef struct {
  int fd, st, status, chunked, cls, warm;
  long long clen, got, csz;
  int cst;
  long long t0, tf, wait, due, last, gap;
  long toks, evs;
  char hdr[16384];
  int hn;
  char carry[CARRY];
  int cn;
  size_t sent;
} conn;

static int ep, port, nconn, expect;
static char *req;
static size_t reqn;
static double secs;
static long long tstart, tend, twarm;
static long long *lat, *ttft, *slat, *gaps;
static long nlat, nttft, nslat, ngaps, caplat;
static int heed, asleep;
static long ok, bad, shed, reconn, reads, toks, evs, bytes;
static char firsterr[400];
static int live;

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void arm(conn *c, int op, int e) {
  struct epoll_event x = {e, {.ptr = c}};
  epoll_ctl(ep, op, c->fd, &x);
}

static int push(conn *c) {
  while (c->sent < reqn) {
    ssize_t r = send(c->fd, req + c->sent, reqn - c->sent, MSG_NOSIGNAL);
    if (r > 0)
      c->sent += r;
    else if (errno == EAGAIN) {
      arm(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
      return 0;
    } else
      return -1;
  }
  arm(c, EPOLL_CTL_MOD, EPOLLIN);
  return 1;
}

static int start(conn *c) {
  c->st = 1;
  c->status = c->chunked = c->cls = 0;
  c->clen = -1;
  c->got = c->csz = 0;
  c->cst = 0;
  c->tf = c->last = c->gap = 0;
  c->wait = -1;
  c->due = 0;
  c->toks = c->evs = 0;
  c->hn = 0;
  c->cn = 0;
  c->sent = 0;
  c->t0 = now();
  return push(c);
}

static int dial(conn *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  int one = 1;
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(c->fd, (void *)&a, sizeof a)) {
    perror("connect");
    exit(2);
  }
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  arm(c, EPOLL_CTL_ADD, EPOLLIN);
  return 0;
}

// scan body bytes: count events and non-empty content, keep a carry over reads
static char sb[RB + CARRY];

static void scan(conn *c, const char *p, size_t n) {
  static const char pat[] = "\"content\":";
  memcpy(sb, c->carry, c->cn);
  memcpy(sb + c->cn, p, n);
  size_t t = c->cn + n;
  char *e = sb + t;
  // a pattern may start in the last 16 bytes and end in the next read: they are carried over, not scanned
  // twice
  char *q = sb, *lim = t > 16 ? e - 16 : sb;
  long before = c->toks;
  for (char *m = q; m < lim && (m = memmem(m, e - m, pat, 10)) && m < lim; m += 10) {
    char *v = m + 10;
    if (*v == ' ') v++;
    if (v[0] == '"' && v[1] != '"') {
      c->toks++;
      if (!c->tf) c->tf = now();
    }
  }
  if (c->toks > before) {
    long long t_ = now();
    if (c->last && t_ - c->last > c->gap) c->gap = t_ - c->last;
    c->last = t_;
  }
  for (char *m = q; m < lim && (m = memmem(m, e - m, "data: {", 7)) && m < lim; m += 7) c->evs++;
  c->cn = e - lim;
  memcpy(c->carry, lim, c->cn);
}

static void scanend(conn *c) {
  char pad[16];
  memset(pad, ' ', sizeof pad);
  if (c->cn) scan(c, pad, sizeof pad);
  c->cn = 0;
}

static void again(conn *c) {
  if (c->cls) {
    reconn++;
    dial(c);
  }
  if (start(c) < 0) {
    dial(c);
    start(c);
  }
}

static int finish(conn *c, int good) {
  scanend(c);
  long long t = now();
  int counts = twarm ? c->t0 >= twarm : c->warm;
  int refused = good && (c->status == 503 || c->status == 429) && c->wait >= 0;
  if (refused) {
    if (counts) {
      shed++;
      if (nslat < caplat) slat[nslat++] = t - c->t0;
    }
  } else if (good && c->status == 200 && (!expect || c->toks == expect)) {
    if (counts) {
      if (nlat < caplat) {
        lat[nlat++] = t - c->t0;
        if (c->tf) ttft[nttft++] = c->tf - c->t0;
        if (c->gap) gaps[ngaps++] = c->gap;
      }
      ok++;
      toks += c->toks;
      evs += c->evs;
    }
  } else {
    bad++;
    if (!firsterr[0])
      snprintf(firsterr, sizeof firsterr, "status %d toks %ld complete %d", c->status, c->toks, good);
  }
  c->warm = 1;
  c->st = 0;
  if (t >= tend || bad > 50) {
    close(c->fd);
    c->fd = -1;
    live--;
    return 0;
  }
  if (refused && heed) {
    c->due = t + c->wait;
    asleep++;
  } else
    again(c);
  return 1;
}

// those that were shed and have waited long enough; at the end nobody waits any more
static void wake(conn *cs) {
  long long t = now();
  for (int i = 0; asleep && i < nconn; i++) {
    conn *c = &cs[i];
    if (!c->due || (c->due > t && t < tend)) continue;
    asleep--;
    c->due = 0;
    if (t < tend)
      again(c);
    else {
      close(c->fd);
      c->fd = -1;
      live--;
    }
  }
}

static char body[RB];

static void feed(conn *c, char *p, size_t n) {
  size_t bn = 0;
  char *e = p + n;
  while (p < e) {
    if (c->st == 1) {
      size_t k = e - p;
      if (c->hn + k > sizeof c->hdr - 1) k = sizeof c->hdr - 1 - c->hn;
      memcpy(c->hdr + c->hn, p, k);
      int old = c->hn;
      c->hn += k;
      c->hdr[c->hn] = 0;
      char *h = memmem(c->hdr, c->hn, "\r\n\r\n", 4);
      if (!h) {
        if (k < (size_t)(e - p)) {
          finish(c, 0);
          return;
        }
        p += k;
        continue;
      }
      p += (h + 4 - c->hdr) - old;
      c->status = atoi(c->hdr + 9);
      if (c->status == 100) {
        c->hn = 0;
        continue;
      }
      for (char *l = c->hdr; l < h;) {
        char *x = memmem(l, h + 2 - l, "\r\n", 2);
        *x = 0;
        if (!strncasecmp(l, "content-length:", 15))
          c->clen = atoll(l + 15);
        else if (!strncasecmp(l, "transfer-encoding:", 18) && strcasestr(l, "chunked"))
          c->chunked = 1;
        else if (!strncasecmp(l, "retry-after-ms:", 15))
          c->wait = atoll(l + 15) * 1000;
        else if (!strncasecmp(l, "retry-after:", 12) && c->wait < 0)
          c->wait = atoll(l + 12) * 1000000;
        else if (!strncasecmp(l, "connection:", 11) && strcasestr(l, "close"))
          c->cls = 1;
        l = x + 2;
        if (x >= h) break;
      }
      c->st = 2;
      c->cst = 0;
      c->csz = 0;
      if (!c->chunked && c->clen == 0) {
        finish(c, 1);
        return;
      }
      continue;
    }
    if (!c->chunked) {
      size_t k = e - p;
      if (c->clen >= 0 && (long long)k > c->clen - c->got) k = c->clen - c->got;
      scan(c, p, k);
      c->got += k;
      p += k;
      bytes += k;
      if (c->clen >= 0 && c->got == c->clen) {
        finish(c, 1);
        return;
      }
      continue;
    }
    switch (c->cst) { // 0 size line, 1 data, 2 CR, 3 LF, 4 trailer line (after size 0)
    case 0: {
      char ch = *p++;
      if (ch == '\n') {
        c->cst = c->csz ? 1 : 4;
        c->got = 0;
      } else if (ch == '\r' || c->got == -1)
        ;
      else if (ch == ';')
        c->got = -1;
      else {
        int d = ch <= '9' ? ch - '0' : (ch | 32) - 'a' + 10;
        c->csz = c->csz * 16 + d;
      }
      break;
    }
    case 1: {
      size_t k = e - p;
      if ((long long)k > c->csz) k = c->csz;
      memcpy(body + bn, p, k);
      bn += k;
      p += k;
      c->csz -= k;
      if (!c->csz) c->cst = 2;
      break;
    }
    case 2:
      p++;
      c->cst = 3;
      break;
    case 3:
      p++;
      c->cst = 0;
      c->csz = 0;
      c->got = 0;
      break;
    case 4: {
      char ch = *p++;
      if (ch == '\n') {
        if (bn) {
          scan(c, body, bn);
          bytes += bn;
        }
        finish(c, 1);
        return;
      }
      break;
    }
    }
  }
  if (bn) {
    scan(c, body, bn);
    bytes += bn;
  }
}

static int cmp(const void *a, const void *b) {
  long long x = *(long long *)a, y = *(long long *)b;
  return x < y ? -1 : x > y;
}

static double pct(long long *v, long n, double q) { return n ? (double)v[(long)(q * (n - 1) + .5)] : 0; }

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc < 6) {
    fprintf(stderr, "usage: load PORT PATH CONNS SECONDS BODYFILE [EXPECT] [Header...]\n");
    return 2;
  }
  port = atoi(argv[1]);
  nconn = atoi(argv[3]);
  secs = atof(argv[4]);
  expect = argc > 6 ? atoi(argv[6]) : 0;
  FILE *f = fopen(argv[5], "rb");
  if (!f) {
    perror(argv[5]);
    return 2;
  }
  static char b[1 << 20];
  size_t bn = fread(b, 1, sizeof b, f);
  fclose(f);
  req = malloc(bn + 65536);
  reqn = sprintf(req,
                 "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAccept: "
                 "*/*\r\nContent-Length: %zu\r\n",
                 argv[2], port, bn);
  int auth = 0;
  for (int i = 7; i < argc; i++) {
    reqn += sprintf(req + reqn, "%s\r\n", argv[i]);
    if (!strncasecmp(argv[i], "authorization", 13)) auth = 1;
  }
  if (!auth) reqn += sprintf(req + reqn, "Authorization: Bearer sk-fake\r\n");
  reqn += sprintf(req + reqn, "\r\n");
  memcpy(req + reqn, b, bn);
  reqn += bn;
  caplat = 5000000;
  lat = malloc(caplat * 8);
  ttft = malloc(caplat * 8);
  slat = malloc(caplat * 8);
  gaps = malloc(caplat * 8);
  heed = getenv("LOAD_HEED") && atoi(getenv("LOAD_HEED"));
  ep = epoll_create1(0);
  conn *cs = calloc(nconn, sizeof *cs);
  static char rb[RB - 1];
  tstart = now();
  if (getenv("LOAD_WARM")) twarm = tstart + (long long)(atof(getenv("LOAD_WARM")) * 1e6);
  tend = tstart + (long long)(secs * 1e6);
  live = nconn;
  for (int i = 0; i < nconn; i++) cs[i].fd = -1;
  int opened = 0; // staggered, so that paced streams are out of phase
  long long stagger = getenv("LOAD_STAGGER_US") ? atoll(getenv("LOAD_STAGGER_US")) : 700;
  struct epoll_event evs_[256];
  long long hard = tend + 60000000LL;
  while (live > 0 && now() < hard) {
    while (opened < nconn && now() >= tstart + opened * stagger) {
      dial(&cs[opened]);
      start(&cs[opened++]);
    }
    int n = epoll_wait(ep, evs_, 256, opened < nconn ? 1 : asleep ? 5 : 1000);
    if (asleep) wake(cs);
    for (int i = 0; i < n; i++) {
      conn *c = evs_[i].data.ptr;
      if (c->fd < 0) continue;
      if (c->due) { // the server hangs up on who is silent for long; it is dialled again after the wait
        c->cls = 1;
        epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, 0);
        continue;
      }
      if (evs_[i].events & EPOLLOUT) push(c);
      if (!(evs_[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
      ssize_t r = recv(c->fd, rb, sizeof rb, 0);
      reads++;
      if (r > 0)
        feed(c, rb, r);
      else if (r == 0 || errno != EAGAIN) {
        c->cls = 1;
        finish(c, c->st == 2 && !c->chunked && c->clen < 0);
      }
    }
  }
  double el = (now() - (twarm ? twarm : tstart)) / 1e6;
  qsort(lat, nlat, 8, cmp);
  qsort(ttft, nttft, 8, cmp);
  qsort(slat, nslat, 8, cmp);
  qsort(gaps, ngaps, 8, cmp);
  double sum = 0;
  for (long i = 0; i < nlat; i++) sum += lat[i];
  struct rusage ru;
  getrusage(RUSAGE_SELF, &ru);
  printf("{\"elapsed\":%.3f,\"ok\":%ld,\"bad\":%ld,\"shed\":%ld,\"shed_p50\":%.1f,\"shed_p99\":%.1f,\"warm\":%d,\"rps\":%.2f,\"lat_mean\":%.1f,\"lat_p50\":%."
         "1f,\"lat_p90\":%.1f,\"lat_p99\":%.1f,\"ttft_p50\":%.1f,\"ttft_p99\":%.1f,\"gap_p50\":%.1f,\"gap_p99\":%.1f,\"gap_max\":%.1f,\"tokens\":%ld,\"events\":"
         "%ld,\"tokens_s\":%.1f,\"bytes\":%ld,\"reads\":%ld,\"reconnects\":%ld,\"stuck\":%d,\"load_cpu\":%."
         "3f,\"err\":\"%s\"}\n",
         el, ok, bad, shed, pct(slat, nslat, .5), pct(slat, nslat, .99), nconn, ok / el, nlat ? sum / nlat : 0, pct(lat, nlat, .5), pct(lat, nlat, .9),
         pct(lat, nlat, .99), pct(ttft, nttft, .5), pct(ttft, nttft, .99), pct(gaps, ngaps, .5), pct(gaps, ngaps, .99),
         pct(gaps, ngaps, 1), toks, evs, toks / el, bytes, reads,
         reconn, live,
         ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6,
         firsterr);
  return 0;
}
