// fake.c - fake OpenAI-compatible upstream + fake SearXNG, one epoll thread, no dependencies.
//   ./fake PORT
// POST */chat/completions  non-streaming and streaming (one SSE event = one HTTP chunk = one send())
// GET  /search?q=..&format=json   SearXNG JSON API       GET /health   GET /v1/models
// GET  /config?chunks=200&delay_us=0&rounds=0&search_us=0&batch=1&ttft_us=0   (change settings at run time)
// GET  /stats  counters (JSON)    GET /reset  zero the counters   GET /last  body of the last chat request
// Tool rounds: while the request carries a tool whose name contains "web_search" and has fewer than
// `rounds` messages of role "tool", the answer is a tool_call to that tool; then the final answer.
// Every tool call asks for something else, so that no cache can answer for a target.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  int fd;
  char *in;
  size_t n, cap;
  char *out;
  size_t on, oo, ocap;
  int want_out;
  int streaming, left, idx;
  int usage;
  long long due;
  int timed;
  char *late;
  size_t laten;
  int active_i;
} conn;

static int ep;
static long cfg_chunks = 200, cfg_delay = 0, cfg_rounds = 0, cfg_search = 0, cfg_batch = 1, cfg_ttft = 0;
static long st_req, st_stream, st_nonstream, st_tool, st_final, st_search, st_chunks, st_conns, st_live,
    st_aborted;
static char *last;
static size_t lastn;
static conn *timed[65536];
static int ntimed;
#define NTOK 64
static char tok[NTOK][512];
static int tokn[NTOK];
static char *full;
static size_t fulln;
static long full_for = -1;

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static int ev(char *o, const char *json) {
  return sprintf(o, "%zx\r\ndata: %s\n\n\r\n", strlen(json) + 8, json);
}

#define HEAD                                                                                                 \
  "{\"id\":\"chatcmpl-fake0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,"   \
  "\"model\":\"fake-model\",\"system_fingerprint\":\"fp_fake\","

static void setup(void) {
  for (int i = 0; i < NTOK; i++) {
    char b[480];
    sprintf(b,
            HEAD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" "
                 "tok%02d\"},\"logprobs\":null,\"finish_reason\":null}]}",
            i);
    tokn[i] = ev(tok[i], b);
  }
}

static void untime(conn *c) {
  if (!c->timed) return;
  c->timed = 0;
  conn *l = timed[--ntimed];
  timed[c->active_i] = l;
  l->active_i = c->active_i;
}

static void settime(conn *c, long long due) {
  c->due = due;
  if (!c->timed) {
    c->timed = 1;
    c->active_i = ntimed;
    timed[ntimed++] = c;
  }
}

static void drop(conn *c) {
  if (c->streaming || c->late) st_aborted++;
  untime(c);
  close(c->fd);
  free(c->in);
  free(c->out);
  free(c->late);
  free(c);
  st_live--;
}

static void add(conn *c, const char *p, size_t n) {
  if (c->oo == c->on) c->oo = c->on = 0;
  if (c->on + n > c->ocap) {
    c->ocap = (c->on + n) * 2;
    c->out = realloc(c->out, c->ocap);
  }
  memcpy(c->out + c->on, p, n);
  c->on += n;
}

static int flush(conn *c) {
  while (c->oo < c->on) {
    ssize_t r = send(c->fd, c->out + c->oo, c->on - c->oo, MSG_NOSIGNAL);
    if (r > 0) {
      c->oo += r;
      continue;
    }
    if (r < 0 && errno == EAGAIN) {
      if (!c->want_out) {
        struct epoll_event e = {EPOLLIN | EPOLLOUT, {.ptr = c}};
        epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
        c->want_out = 1;
      }
      return 0;
    }
    return -1;
  }
  if (c->want_out) {
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
    c->want_out = 0;
  }
  return 1;
}

// emit stream events; returns -1 on dead conn
static int pump(conn *c) {
  for (;;) {
    int f = flush(c);
    if (f <= 0) return f;
    if (!c->streaming) return 1;
    if (cfg_delay && c->due > now()) {
      settime(c, c->due);
      return 1;
    }
    int b = cfg_batch > 0 ? cfg_batch : 1;
    for (; b && c->left; b--, c->left--) {
      add(c, tok[c->idx % NTOK], tokn[c->idx % NTOK]);
      c->idx++;
      st_chunks++;
    }
    if (!c->left && b) {
      char t[1024];
      int n = ev(t, HEAD
                 "\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}");
      add(c, t, n);
      if (c->usage) {
        n = ev(t, HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":200,\"total_"
                       "tokens\":220}}");
        add(c, t, n);
      }
      add(c, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 24);
      c->streaming = 0;
      untime(c);
      continue;
    }
    if (cfg_delay) c->due += cfg_delay;
  }
}

static void simple(conn *c, int code, const char *ct, const char *body, size_t n) {
  char h[256];
  int k = sprintf(h, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", code,
                  code == 200 ? "OK" : "Not Found", ct, n);
  add(c, h, k);
  add(c, body, n);
}

// find "key" : "value-prefix" / key : true with optional blanks; crude on purpose (requests are ours)
static const char *kv(const char *p, const char *end, const char *key, const char *val) {
  size_t kl = strlen(key), vl = strlen(val);
  while (p < end && (p = memmem(p, end - p, key, kl))) {
    p += kl;
    const char *q = p;
    while (q < end && *q == ' ') q++;
    if (q < end && *q == ':') {
      q++;
      while (q < end && *q == ' ') q++;
      if ((size_t)(end - q) >= vl && !memcmp(q, val, vl)) return q;
    }
  }
  return 0;
}

static void chat(conn *c, const char *b, size_t n) {
  const char *e = b + n, *p;
  st_req++;
  free(last);
  last = malloc(n + 1);
  memcpy(last, b, n);
  last[lastn = n] = 0;
  int stream = !!kv(b, e, "\"stream\"", "true");
  long tools = 0;
  char name[80] = "";
  for (p = b; (p = kv(p, e, "\"role\"", "\"tool\""));) tools++;
  const char *ts = memmem(b, n, "\"tools\"", 7);
  if (ts && cfg_rounds > tools) {
    for (p = ts; (p = kv(p, e, "\"name\"", "\""));) {
      const char *q = memchr(p + 1, '"', e - p - 1);
      if (!q || q - p > 78) continue;
      snprintf(name, sizeof name, "%.*s", (int)(q - p - 1), p + 1);
      if (strstr(name, "web_search")) break;
      name[0] = 0;
    }
  }
  stream ? st_stream++ : st_nonstream++;
  char o[4096], j[2048];
  int k;
  if (name[0]) {
    st_tool++;
    if (!stream) {
      k = sprintf(o,
                  "{\"id\":\"chatcmpl-fake\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":"
                  "\"fake-model\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                  "null,\"tool_calls\":[{\"id\":\"call_fake%ld\",\"type\":\"function\",\"function\":{"
                  "\"name\":\"%s\",\"arguments\":\"{\\\"query\\\":\\\"capital of France "
                  "%ld\\\"}\"}}]},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":20,"
                  "\"completion_tokens\":12,\"total_tokens\":32}}",
                  tools, name, st_tool);
      simple(c, 200, "application/json", o, k);
      return;
    }
    k = sprintf(o, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
                   "chunked\r\n\r\n");
    add(c, o, k);
    sprintf(j,
            HEAD "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_"
                 "calls\":[{\"index\":0,\"id\":\"call_fake%ld\",\"type\":\"function\",\"function\":{\"name\":"
                 "\"%s\",\"arguments\":\"\"}}]},\"finish_reason\":null}]}",
            tools, name);
    add(c, o, ev(o, j));
    char a2[80];
    sprintf(a2, "capital of France %ld\\\"}", st_tool);
    const char *parts[] = {"{\\\"query\\\":", " \\\"", a2};
    for (int i = 0; i < 3; i++) {
      sprintf(j,
              HEAD "\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
                   "\"arguments\":\"%s\"}}]},\"finish_reason\":null}]}",
              parts[i]);
      add(c, o, ev(o, j));
    }
    add(c, o, ev(o, HEAD "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}"));
    add(c, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 24);
    return;
  }
  st_final++;
  if (!stream) {
    if (full_for != cfg_chunks) {
      free(full);
      full = malloc(cfg_chunks * 8 + 1024);
      fulln = sprintf(
          full,
          "{\"id\":\"chatcmpl-fake\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"fake-"
          "model\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
      for (long i = 0; i < cfg_chunks; i++) fulln += sprintf(full + fulln, " tok%02ld", i % 64);
      fulln += sprintf(full + fulln,
                       "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":20,"
                       "\"completion_tokens\":%ld,\"total_tokens\":%ld}}",
                       cfg_chunks, cfg_chunks + 20);
      full_for = cfg_chunks;
    }
    simple(c, 200, "application/json", full, fulln);
    return;
  }
  k = sprintf(o, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n");
  add(c, o, k);
  add(c, o,
      ev(o, HEAD "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":"
                 "null,\"finish_reason\":null}]}"));
  c->streaming = 1;
  c->left = cfg_chunks;
  c->idx = 0;
  c->usage = !!kv(b, e, "\"include_usage\"", "true");
  c->due = now() + cfg_ttft + (cfg_delay ? cfg_delay : 0);
  if (cfg_ttft && !cfg_delay) c->due = 0;
}

static void search(conn *c, const char *t) {
  st_search++;
  char q[200] = "", o[8192];
  const char *p = strstr(t, "q=");
  if (p) {
    int i = 0;
    for (p += 2; *p && *p != '&' && *p != ' ' && i < 150; p++)
      if (isalnum((unsigned char)*p) || *p == '+' || *p == '%') q[i++] = *p;
    q[i] = 0;
  }
  int k = sprintf(o, "{\"query\":\"%s\",\"number_of_results\":5,\"results\":[", q);
  for (int i = 0; i < 5; i++)
    k += sprintf(o + k,
                 "%s{\"url\":\"https://example.org/page/%d\",\"title\":\"Result %d about "
                 "Paris\",\"content\":\"Paris is the capital of France; this is the snippet of result %d, of "
                 "a usual length for a search engine result text, about one hundred and sixty "
                 "characters.\",\"engine\":\"fake\",\"parsed_url\":[\"https\",\"example.org\",\"/page/"
                 "%d\",\"\",\"\",\"\"],\"template\":\"default.html\",\"engines\":[\"fake\"],\"positions\":[%"
                 "d],\"score\":%d.0,\"category\":\"general\",\"publishedDate\":null}",
                 i ? "," : "", i + 1, i + 1, i + 1, i + 1, i + 1, 5 - i);
  k += sprintf(
      o + k,
      "],\"answers\":[],\"corrections\":[],\"infoboxes\":[],\"suggestions\":[],\"unresponsive_engines\":[]}");
  if (!cfg_search) {
    simple(c, 200, "application/json", o, k);
    return;
  }
  char h[200];
  int hn = sprintf(h, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", k);
  c->late = malloc(hn + k);
  memcpy(c->late, h, hn);
  memcpy(c->late + hn, o, k);
  c->laten = hn + k;
  settime(c, now() + cfg_search);
}

static void cfg(const char *t) {
  struct {
    const char *n;
    long *v;
  } m[] = {{"chunks=", &cfg_chunks},    {"delay_us=", &cfg_delay}, {"rounds=", &cfg_rounds},
           {"search_us=", &cfg_search}, {"batch=", &cfg_batch},    {"ttft_us=", &cfg_ttft}};

  for (int i = 0; i < 6; i++) {
    const char *p = strstr(t, m[i].n);
    if (p) *m[i].v = atol(p + strlen(m[i].n));
  }
}

static void dispatch(conn *c, const char *line, const char *body, size_t bn) {
  char o[1024];
  const char *t = strchr(line, ' ');
  if (!t)
    t = "";
  else
    t++;
  char path[2048];
  int i = 0;
  for (; t[i] && t[i] != ' ' && t[i] != '\r' && i < 2047; i++) path[i] = t[i];
  path[i] = 0;
  char *qs = strchr(path, '?');
  size_t pl = qs ? (size_t)(qs - path) : strlen(path);
  if (pl >= 17 && !memcmp(path + pl - 17, "/chat/completions", 17))
    chat(c, body, bn);
  else if (pl >= 7 && !memcmp(path + pl - 7, "/search", 7))
    search(c, qs ? qs : (bn ? body : ""));
  else if (!strncmp(path, "/config", 7)) {
    cfg(path);
    int k = sprintf(
        o,
        "{\"chunks\":%ld,\"delay_us\":%ld,\"rounds\":%ld,\"search_us\":%ld,\"batch\":%ld,\"ttft_us\":%ld}\n",
        cfg_chunks, cfg_delay, cfg_rounds, cfg_search, cfg_batch, cfg_ttft);
    simple(c, 200, "application/json", o, k);
  } else if (!strncmp(path, "/stats", 6)) {
    int k = sprintf(o,
                    "{\"requests\":%ld,\"stream\":%ld,\"nonstream\":%ld,\"tool_calls\":%ld,\"finals\":%ld,"
                    "\"searches\":%ld,\"chunks\":%ld,\"conns\":%ld,\"live\":%ld,\"aborted\":%ld}\n",
                    st_req, st_stream, st_nonstream, st_tool, st_final, st_search, st_chunks, st_conns,
                    st_live, st_aborted);
    simple(c, 200, "application/json", o, k);
  } else if (!strncmp(path, "/reset", 6)) {
    st_req = st_stream = st_nonstream = st_tool = st_final = st_search = st_chunks = st_conns = st_aborted =
        0;
    simple(c, 200, "application/json", "{}\n", 3);
  } else if (!strncmp(path, "/last", 5))
    simple(c, 200, "application/json", last ? last : "{}", last ? lastn : 2);
  else if (pl >= 7 && !memcmp(path + pl - 7, "/models", 7)) {
    const char *m = "{\"object\":\"list\",\"data\":[{\"id\":\"fake-model\",\"object\":\"model\",\"created\":"
                    "1760000000,\"owned_by\":\"fake\"}]}";
    simple(c, 200, "application/json", m, strlen(m));
  } else if (!strncmp(path, "/health", 7) || !strcmp(path, "/"))
    simple(c, 200, "application/json", "{\"status\":\"ok\"}", 15);
  else
    simple(c, 404, "application/json", "{\"error\":{\"message\":\"not found\"}}", 33);
}

static int handle(conn *c) { // returns -1 on dead
  while (c->n && !c->streaming && !c->late) {
    c->in[c->n] = 0;
    char *h = memmem(c->in, c->n, "\r\n\r\n", 4);
    if (!h) return 1;
    size_t hl = h + 4 - c->in, bn = 0, used;
    char *body = c->in + hl;
    int chunked = 0, expect = 0;
    for (char *p = c->in; p < h;) {
      char *e = memmem(p, h + 2 - p, "\r\n", 2);
      if (!strncasecmp(p, "content-length:", 15))
        bn = strtoul(p + 15, 0, 10);
      else if (!strncasecmp(p, "transfer-encoding:", 18) && strcasestr(p + 18, "chunked") &&
               strcasestr(p + 18, "chunked") < e)
        chunked = 1;
      else if (!strncasecmp(p, "expect:", 7))
        expect = 1;
      if (!e) break;
      p = e + 2;
    }
    char *tmp = 0;
    if (chunked) {
      char *p = body, *e = c->in + c->n;
      tmp = malloc(c->n);
      bn = 0;
      int done = 0;
      while (p < e) {
        char *nl = memmem(p, e - p, "\r\n", 2);
        if (!nl) break;
        size_t k = strtoul(p, 0, 16);
        p = nl + 2;
        if ((size_t)(e - p) < k + 2) break;
        if (!k) {
          done = 1;
          p += 2;
          break;
        }
        memcpy(tmp + bn, p, k);
        bn += k;
        p += k + 2;
      }
      if (!done) {
        free(tmp);
        return 1;
      }
      used = p - c->in;
      body = tmp;
    } else {
      if (c->n < hl + bn) {
        if (expect && c->n == hl) {
          add(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
          flush(c);
        }
        return 1;
      }
      used = hl + bn;
    }
    dispatch(c, c->in, body, bn);
    free(tmp);
    memmove(c->in, c->in + used, c->n - used);
    c->n -= used;
    if (pump(c) < 0) return -1;
  }
  return 1;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  setup();
  int port = argc > 1 ? atoi(argv[1]) : 9100;
  int ls = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(ls, (void *)&a, sizeof a) || listen(ls, 4096)) {
    perror("bind");
    return 1;
  }
  ep = epoll_create1(0);
  struct epoll_event e = {EPOLLIN, {.ptr = 0}};
  epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
  struct epoll_event evs[512];
  for (;;) {
    struct timespec ts, *tp = 0;
    if (ntimed) {
      long long t = now(), m = timed[0]->due;
      for (int i = 1; i < ntimed; i++)
        if (timed[i]->due < m) m = timed[i]->due;
      long long d = m > t ? m - t : 0;
      ts.tv_sec = d / 1000000;
      ts.tv_nsec = d % 1000000 * 1000;
      tp = &ts;
    }
    int n = epoll_pwait2(ep, evs, 512, tp, 0);
    for (int i = 0; i < n; i++) {
      conn *c = evs[i].data.ptr;
      if (!c) {
        int fd = accept4(ls, 0, 0, SOCK_NONBLOCK);
        if (fd >= 0) {
          setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          c = calloc(1, sizeof *c);
          c->fd = fd;
          c->in = malloc((c->cap = 16384) + 1);
          struct epoll_event x = {EPOLLIN, {.ptr = c}};
          epoll_ctl(ep, EPOLL_CTL_ADD, fd, &x);
          st_conns++;
          st_live++;
        }
        continue;
      }
      if (evs[i].events & (EPOLLHUP | EPOLLERR)) {
        drop(c);
        continue;
      }
      if (evs[i].events & EPOLLIN) {
        if (c->cap - c->n < 8192) c->in = realloc(c->in, (c->cap *= 2) + 1);
        ssize_t r = recv(c->fd, c->in + c->n, c->cap - c->n, 0);
        if (r == 0 || (r < 0 && errno != EAGAIN)) {
          drop(c);
          continue;
        }
        if (r > 0) {
          c->n += r;
          if (handle(c) < 0) {
            drop(c);
            continue;
          }
        }
      }
      if (evs[i].events & EPOLLOUT) {
        if (pump(c) < 0) {
          drop(c);
          continue;
        }
        if (!c->streaming && handle(c) < 0) {
          drop(c);
          continue;
        }
      }
    }
    if (ntimed) {
      long long t = now();
      for (int i = ntimed - 1; i >= 0; i--) {
        if (i >= ntimed) continue;
        conn *c = timed[i];
        if (c->due > t) continue;
        if (c->late) {
          add(c, c->late, c->laten);
          free(c->late);
          c->late = 0;
          untime(c);
        }
        if (pump(c) < 0) {
          drop(c);
          continue;
        }
        if (!c->streaming && !c->late && handle(c) < 0) drop(c);
      }
    }
  }
}
