/* pool_check.c: functions that exercise the executor they are given, for test_pool.py. */
#include "tfc_abi.h"

uint64_t tfc_ticks(void);
int32_t tfc_raise(tfc_error *error, int32_t code, int32_t where, int64_t axis, int64_t actual,
                  int64_t expected, const char *node);

static int32_t bind_nothing(const int64_t *dims, int64_t *symbols, tfc_error *e) {
  (void)dims, (void)symbols, (void)e;
  return TFC_OK;
}

static int32_t prepare_scalar(const int64_t *symbols, int64_t *dims, int64_t *scratch_bytes,
                              tfc_error *e) {
  (void)symbols, (void)dims, (void)e;
  *scratch_bytes = 0;
  return TFC_OK;
}

static int64_t input(const tfc_call *call, int i) { return *(const int64_t *)call->inputs[i]; }

static void add_index(void *arg, int64_t index) {
  __atomic_fetch_add((int64_t *)arg, index + 1, __ATOMIC_RELAXED);
}

/* total(n, loops): the sum of 1..n, once for each loop, drawn in parallel */
static int32_t run_total(const tfc_call *call, tfc_error *e) {
  const tfc_executor *executor = call->executor;
  int64_t *total = call->outputs[0], n = input(call, 0);
  (void)e;
  *total = 0;
  for (int64_t i = 0; i < input(call, 1); i++)
    executor->parallel_for(executor->self, n, add_index, total);
  return TFC_OK;
}

typedef struct {
  const tfc_executor *executor;
  int64_t *total;
  int64_t n;
} inner;

static void run_inner(void *arg, int64_t index) {
  inner *loop = arg;
  (void)index;
  loop->executor->parallel_for(loop->executor->self, loop->n, add_index, loop->total);
}

/* nested(n, loops): the same sum, each loop an index of an outer loop */
static int32_t run_nested(const tfc_call *call, tfc_error *e) {
  inner loop = {call->executor, call->outputs[0], input(call, 0)};
  (void)e;
  *loop.total = 0;
  loop.executor->parallel_for(loop.executor->self, input(call, 1), run_inner, &loop);
  return TFC_OK;
}

typedef struct {
  int64_t arrived;
  int64_t met;
} meeting;

/* Waits until two have arrived, or for at most 2 seconds. */
static void meet(void *arg, int64_t index) {
  meeting *m = arg;
  uint64_t end = tfc_ticks() + 2000000000u;
  (void)index;
  __atomic_fetch_add(&m->arrived, 1, __ATOMIC_SEQ_CST);
  while (tfc_ticks() < end)
    if (__atomic_load_n(&m->arrived, __ATOMIC_SEQ_CST) >= 2) {
      __atomic_fetch_add(&m->met, 1, __ATOMIC_SEQ_CST);
      return;
    }
}

/* meet(): 2 where two threads were inside one loop at the same time */
static int32_t run_meet(const tfc_call *call, tfc_error *e) {
  meeting m = {0, 0};
  (void)e;
  call->executor->parallel_for(call->executor->self, 2, meet, &m);
  *(int64_t *)call->outputs[0] = m.met;
  return TFC_OK;
}

static void work_2000_ns(void *arg, int64_t index) {
  uint64_t end = tfc_ticks() + 2000;
  (void)arg, (void)index;
  while (tfc_ticks() < end) {
  }
}

/* overhead(n, loops): nanoseconds beyond 2000 of a loop of n indices of 2000 ns each, on average;
 * of 50 loops those that took least, so that a machine shared with others does not matter much */
static int32_t run_overhead(const tfc_call *call, tfc_error *e) {
  const tfc_executor *executor = call->executor;
  int64_t n = input(call, 0), least = INT64_MAX;
  (void)e;
  for (int64_t i = 0; i < input(call, 1); i++) {
    uint64_t start = tfc_ticks();
    for (int j = 0; j < 50; j++) executor->parallel_for(executor->self, n, work_2000_ns, 0);
    int64_t time = (int64_t)(tfc_ticks() - start) / 50 - 2000;
    if (time < least) least = time;
  }
  *(int64_t *)call->outputs[0] = least;
  return TFC_OK;
}

typedef struct {
  tfc_error *error;
  int64_t limit;
} guard;

static void refuse_from_limit(void *arg, int64_t index) {
  guard *g = arg;
  if (index >= g->limit)
    tfc_raise(g->error, TFC_ERROR_INDEX, -1, 2, index, g->limit, "the node");
}

/* guarded(n, limit): an error where any index reaches the limit */
static int32_t run_guarded(const tfc_call *call, tfc_error *e) {
  guard g = {e, input(call, 1)};
  call->executor->parallel_for(call->executor->self, input(call, 0), refuse_from_limit, &g);
  *(int64_t *)call->outputs[0] = 0;
  return e->code;
}

const tfc_function tfc_functions[] = {
    {"total", 2, 1, 0, 0, 0, 0, 0, 0, bind_nothing, prepare_scalar, run_total},
    {"nested", 2, 1, 0, 0, 0, 0, 0, 0, bind_nothing, prepare_scalar, run_nested},
    {"meet", 0, 1, 0, 0, 0, 0, 0, 0, bind_nothing, prepare_scalar, run_meet},
    {"overhead", 2, 1, 0, 0, 0, 0, 0, 0, bind_nothing, prepare_scalar, run_overhead},
    {"guarded", 2, 1, 0, 0, 0, 0, 0, 0, bind_nothing, prepare_scalar, run_guarded},
};
const int32_t tfc_function_count = 5;
const tfc_variable_info tfc_variables[1] = {{0, 0}};
const int32_t tfc_variable_count = 0;
