/* pool.c: the process's worker threads, compiled into every bundle's shared object.
 *
 * One loop runs at a time. A caller opens the gate, draws indices like the workers do, closes the
 * gate and waits until the last worker has left: it never waits for one that has not come yet. A
 * second caller, or a loop inside a loop, runs its indices itself.
 *
 * Workers start when first needed, wait actively only while a run is in flight (and not for long),
 * else sleep. All state lies in one mapping that the kernel zeroes in a forked child, and all zeros
 * means an idle pool without workers: a child starts its own.
 *
 * Only symbols with a single version in every libc are used (no pthread condition variables, no
 * sched_getaffinity, no pthread_atfork): shared objects bind to them without naming a libc.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tfc_abi.h"

enum {
  MAX_THREADS = 256,
  SPIN_NANOSECONDS = 200000, /* a worker's wait between two loops of a run before it sleeps */
  STACK_BYTES = 2 << 20,
  CHUNKS_PER_THREAD = 8
};

/* The gate's word: how many workers are inside, how many may be, flags, and the loop's number. */
#define INSIDE_MASK 0xfffull
#define LIMIT_SHIFT 12
#define OPEN (1ull << 24)
#define CALLER_SLEEPS (1ull << 25)
#define NUMBER_SHIFT 32

typedef struct {
  uint32_t lock;    /* 1 while a caller's loop is in flight */
  uint32_t running; /* runs between begin and end */
  uint32_t stopping;
  int32_t started; /* workers; changed under the lock */
  int32_t owner;   /* process, where the kernel cannot zero the mapping in a child */
  pthread_t workers[MAX_THREADS];
  /* The loop, in one cache line, since a worker needs all of it at once. What follows the gate is
   * written while it is shut and nobody is inside. */
  _Alignas(64) uint64_t gate;
  int64_t next;
  void (*fn)(void *arg, int64_t index);
  void *arg;
  int64_t n;
  int64_t chunk;
  _Alignas(64) uint32_t epoch; /* sleepers wait for a change of this */
  uint32_t sleepers;
} pool_state;

static pool_state *shared_state; /* set once */
static int32_t zeroed_by_fork;
static int32_t usable_threads;
static tfc_executor views[MAX_THREADS + 1];

#define LOAD(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void futex_wait(const void *word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, (void *)0, (void *)0, 0);
}

static void futex_wake(const void *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, (void *)0, (void *)0, 0);
}

/* The half of the gate that holds everything but the loop's number. */
static const void *gate_futex(const pool_state *pool) { return &pool->gate; }

/* ---- the loop ---- */

static void draw_indices(pool_state *pool) {
  const int64_t n = pool->n, chunk = pool->chunk;
  for (;;) {
    int64_t first = __atomic_fetch_add(&pool->next, chunk, __ATOMIC_RELAXED);
    if (first >= n) return;
    int64_t end = n - first < chunk ? n : first + chunk;
    for (int64_t i = first; i < end; i++) pool->fn(pool->arg, i);
  }
}

static int has_room(uint64_t gate, uint32_t last_loop) {
  return (gate & OPEN) && (gate >> NUMBER_SHIFT) != last_loop &&
         (gate & INSIDE_MASK) < (gate >> LIMIT_SHIFT & INSIDE_MASK);
}

static void leave(pool_state *pool) {
  uint64_t before = __atomic_fetch_sub(&pool->gate, 1, __ATOMIC_SEQ_CST);
  if ((before & CALLER_SLEEPS) && (before & INSIDE_MASK) == 1) futex_wake(gate_futex(pool), 1);
}

/* Takes part in the open loop, if there is one that this worker has not yet been in. */
static int take_part(pool_state *pool, uint32_t *last_loop) {
  uint64_t gate = LOAD(&pool->gate);
  if (!has_room(gate, *last_loop)) return 0;
  if (!__atomic_compare_exchange_n(&pool->gate, &gate, gate + 1, 0, __ATOMIC_SEQ_CST,
                                   __ATOMIC_RELAXED))
    return 1; /* another was quicker: look again */
  *last_loop = (uint32_t)(gate >> NUMBER_SHIFT);
  draw_indices(pool);
  leave(pool);
  return 1;
}

static void sleep_until_work(pool_state *pool, uint32_t last_loop) {
  uint32_t epoch = LOAD(&pool->epoch);
  ADD(&pool->sleepers, 1u);
  if (!has_room(LOAD(&pool->gate), last_loop) && !LOAD(&pool->stopping))
    futex_wait(&pool->epoch, epoch);
  ADD(&pool->sleepers, -1u);
}

static void *work(void *argument) {
  pool_state *pool = (pool_state *)argument;
  uint32_t last_loop = 0; /* no loop has this number */
  int64_t deadline = 0;
  while (!LOAD(&pool->stopping)) {
    if (take_part(pool, &last_loop)) {
      deadline = 0;
      continue;
    }
    int64_t now = nanoseconds();
    if (!deadline) deadline = now + SPIN_NANOSECONDS;
    if (!LOAD(&pool->running) || now >= deadline) {
      sleep_until_work(pool, last_loop);
      deadline = 0;
      continue;
    }
    int turns = 0;
    do relax();
    while (++turns < 16 && !(LOAD(&pool->gate) & OPEN));
  }
  return 0;
}

static void start_workers(pool_state *pool, int32_t count) {
  sigset_t all, old;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the program's own threads */
  while (pool->started < count &&
         !pthread_create(&pool->workers[pool->started], &attributes, work, pool))
    pool->started++;
  pthread_sigmask(SIG_SETMASK, &old, 0);
  pthread_attr_destroy(&attributes);
}

static void open_gate(pool_state *pool, int32_t helpers) {
  uint64_t number = (LOAD(&pool->gate) >> NUMBER_SHIFT) + 1;
  if (!(number & 0xffffffffull)) number = 1;
  STORE(&pool->gate, number << NUMBER_SHIFT | OPEN | (uint64_t)helpers << LIMIT_SHIFT);
  int32_t awake = pool->started - (int32_t)LOAD(&pool->sleepers);
  if (awake >= helpers) return;
  ADD(&pool->epoch, 1u);
  futex_wake(&pool->epoch, helpers - awake);
}

static void close_gate(pool_state *pool) {
  uint64_t gate = __atomic_and_fetch(&pool->gate, ~OPEN, __ATOMIC_SEQ_CST);
  for (int spins = 0; gate & INSIDE_MASK; spins++) {
    if (spins >= 2000) {
      gate = __atomic_or_fetch(&pool->gate, CALLER_SLEEPS, __ATOMIC_SEQ_CST);
      if (gate & INSIDE_MASK) futex_wait(gate_futex(pool), (uint32_t)gate);
    }
    relax();
    gate = LOAD(&pool->gate);
  }
}

static pool_state *state_of_this_process(void) {
  pool_state *pool = LOAD(&shared_state);
  if (zeroed_by_fork || pool->owner == (int32_t)getpid()) return pool;
  memset(pool, 0, sizeof *pool); /* the parent's workers do not exist here */
  pool->owner = (int32_t)getpid();
  return pool;
}

static void run_inline(int64_t n, void (*fn)(void *, int64_t), void *arg) {
  for (int64_t i = 0; i < n; i++) fn(arg, i);
}

static void parallel_for(void *self, int64_t n, void (*fn)(void *, int64_t), void *arg) {
  int32_t threads = ((const tfc_executor *)self)->threads;
  if (n <= 1 || threads <= 1) {
    run_inline(n, fn, arg);
    return;
  }
  pool_state *pool = state_of_this_process();
  if (LOAD(&pool->lock) || __atomic_exchange_n(&pool->lock, 1u, __ATOMIC_SEQ_CST)) {
    run_inline(n, fn, arg);
    return;
  }
  int32_t helpers = n < threads ? (int32_t)n - 1 : threads - 1;
  if (pool->started < helpers) start_workers(pool, helpers);
  if (helpers > pool->started) helpers = pool->started;
  pool->fn = fn;
  pool->arg = arg;
  pool->n = n;
  pool->chunk = n / ((int64_t)(helpers + 1) * CHUNKS_PER_THREAD);
  if (pool->chunk < 1) pool->chunk = 1;
  STORE(&pool->next, 0);
  open_gate(pool, helpers);
  draw_indices(pool);
  close_gate(pool);
  STORE(&pool->lock, 0u);
}

static void begin(void *self) {
  (void)self;
  ADD(&state_of_this_process()->running, 1u);
}

static void end(void *self) {
  (void)self;
  ADD(&state_of_this_process()->running, -1u);
}

/* ---- how many threads the process may use ---- */

/* The file's text, at most size - 1 bytes, or "". */
static const char *read_text(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  return text;
}

/* The number at *text, which then points behind it; 0 where there is none ("max", "-1"). */
static int64_t read_number(const char **text) {
  int64_t value = 0;
  while (**text == ' ') ++*text;
  for (; **text >= '0' && **text <= '9'; ++*text)
    if (value < (int64_t)1 << 50) value = value * 10 + (**text - '0');
  return value;
}

static int32_t whole_processors(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return MAX_THREADS;
  int64_t count = (quota + period - 1) / period;
  return count < MAX_THREADS ? (int32_t)count : MAX_THREADS;
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* Builds directory + name in path; 0 where it does not fit. */
static int join(char *path, size_t size, const char *root, const char *directory, size_t length,
                const char *name) {
  size_t start = strlen(root), tail = strlen(name) + 1;
  if (start + length + tail > size) return 0;
  memcpy(path, root, start);
  memcpy(path + start, directory, length);
  memcpy(path + start + length, name, tail);
  return 1;
}

/* The tightest quota of the control groups above and at `group` ("/a/b"). */
static int32_t group_quota(const char *group, size_t length) {
  char path[512], text[64], period[64];
  int32_t count = MAX_THREADS;
  for (;;) {
    if (join(path, sizeof path, "/sys/fs/cgroup", group, length, "/cpu.max")) {
      const char *at = read_text(path, text, sizeof text);
      int64_t quota = read_number(&at);
      count = least(count, whole_processors(quota, read_number(&at)));
    }
    if (join(path, sizeof path, "/sys/fs/cgroup/cpu", group, length, "/cpu.cfs_quota_us")) {
      const char *at = read_text(path, text, sizeof text), *other = period;
      join(path, sizeof path, "/sys/fs/cgroup/cpu", group, length, "/cpu.cfs_period_us");
      read_text(path, period, sizeof period);
      int64_t quota = read_number(&at);
      count = least(count, whole_processors(quota, read_number(&other)));
    }
    if (!length) return count;
    while (length && group[--length] != '/') {
    }
  }
}

/* /proc/self/cgroup holds lines "number:controllers:path"; version 2 has no controllers. */
static int32_t quota_threads(void) {
  char text[4096];
  const char *at = read_text("/proc/self/cgroup", text, sizeof text);
  int32_t count = group_quota("", 0);
  while (*at) {
    const char *end = strchr(at, '\n');
    size_t length = end ? (size_t)(end - at) : strlen(at);
    const char *group = memchr(at, '/', length);
    if (group) count = least(count, group_quota(group, length - (size_t)(group - at)));
    at += length + (end != 0);
  }
  return count;
}

static int32_t affinity_threads(void) {
  unsigned long mask[128]; /* 8192 processors */
  long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int32_t count = 0;
  for (long i = 0; i < bytes / (long)sizeof *mask; i++) count += __builtin_popcountl(mask[i]);
  return count > 0 ? count : 1;
}

static int32_t default_threads(void) {
  int32_t known = LOAD(&usable_threads);
  if (known) return known;
  known = least(least(affinity_threads(), quota_threads()), MAX_THREADS);
  STORE(&usable_threads, known);
  return known;
}

/* ---- what support.c hands to the loaders ---- */

static int make_state(void) {
  if (LOAD(&shared_state)) return 1;
  void *memory =
      mmap(0, sizeof(pool_state), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  int zeroed = !madvise(memory, sizeof(pool_state), MADV_WIPEONFORK);
  pool_state *pool = (pool_state *)memory, *none = 0;
  pool->owner = (int32_t)getpid();
  STORE(&zeroed_by_fork, zeroed);
  if (!__atomic_compare_exchange_n(&shared_state, &none, pool, 0, __ATOMIC_SEQ_CST,
                                   __ATOMIC_SEQ_CST))
    munmap(memory, sizeof(pool_state)); /* another thread was quicker */
  return 1;
}

/* The executor that keeps at most `threads` at work; writing it twice writes the same values. */
const tfc_executor *tfc_pool(int32_t threads) {
  if (threads <= 0) threads = default_threads();
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (!make_state()) threads = 1;
  int alone = threads == 1;
  tfc_executor *view = &views[threads];
  __atomic_store_n(&view->self, view, __ATOMIC_RELAXED);
  __atomic_store_n(&view->threads, threads, __ATOMIC_RELAXED);
  __atomic_store_n(&view->parallel_for, parallel_for, __ATOMIC_RELAXED);
  __atomic_store_n(&view->begin, alone ? 0 : begin, __ATOMIC_RELAXED);
  __atomic_store_n(&view->end, alone ? 0 : end, __ATOMIC_RELAXED);
  return view;
}

void tfc_pool_stop(void) {
  pool_state *pool = LOAD(&shared_state);
  if (!pool) return;
  pool = state_of_this_process();
  STORE(&pool->stopping, 1u);
  ADD(&pool->epoch, 1u);
  futex_wake(&pool->epoch, MAX_THREADS);
  for (int32_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i], 0);
  STORE(&shared_state, (pool_state *)0);
  munmap(pool, sizeof *pool);
}
