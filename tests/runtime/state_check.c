/* state_check.c: variables, control flow and host ops from C; see tests/test_bundles.py.
 *
 *   ./state_check counter.tfb queue.tfb
 */
#define TFC_IMPLEMENTATION
#include "tfc.h"

static int failures;

static void expect(int holds, const char *what, const tfc_status *status) {
  if (holds) return;
  failures++;
  fprintf(stderr, "%s: %d %s\n", what, (int)status->code, status->message);
}

/* Runs a function whose inputs and outputs are vectors of 4 floats (or one i64). */
static int32_t run(const tfc_bundle *bundle, const char *name, const void *input, void *output,
                   void *second, void *state, const tfc_host *host, tfc_status *status) {
  const tfc_signature *f = tfc_find_function(bundle, name);
  int64_t dims[4] = {4, 0, 0, 0}, symbols[1], output_dims[4], bytes;
  void *outputs[2], *scratch;
  tfc_environment environment;
  int32_t code;
  outputs[0] = output;
  outputs[1] = second;
  environment.executor = NULL;
  environment.state = state;
  environment.host = host;
  if (!f || tfc_bind(f, dims, symbols, status)) return -1;
  if (tfc_prepare(f, symbols, output_dims, &bytes, status)) return -1;
  if (posix_memalign(&scratch, 64, (size_t)bytes + 64)) return -1;
  code = tfc_run_with(f, symbols, &input, outputs, scratch, &environment, status);
  free(scratch);
  return code;
}

static void *new_state(const tfc_bundle *bundle, tfc_status *status) {
  void *state;
  if (posix_memalign(&state, 64, tfc_state_bytes(bundle))) abort();
  expect(!tfc_state_init(bundle, state, status), "init of state", status);
  return state;
}

static void check_counter(const tfc_bundle *bundle) {
  const float x[4] = {1, 2, 3, 4};
  float y[4] = {0, 0, 0, 0};
  int64_t steps = 0;
  tfc_status status;
  void *state = new_state(bundle, &status), *other = new_state(bundle, &status);
  int32_t code, i;
  expect(tfc_variable_count(bundle) == 2, "count of variables", &status);
  expect(strcmp(tfc_variable_at(bundle, 0)->name, "total") == 0, "name of a variable", &status);
  expect(tfc_variable_at(bundle, 2) == NULL, "no third variable", &status);
  code = run(bundle, "peek", x, y, NULL, NULL, NULL, &status);
  expect(code == TFC_ERROR_ARGUMENT && strstr(status.message, "peek uses variables"),
         "a run without state", &status);
  code = run(bundle, "peek", x, y, NULL, state, NULL, &status);
  expect(code == TFC_ERROR_UNINITIALIZED && strstr(status.message, "\"total\" is not initialized"),
         "a variable that was not assigned", &status);
  expect(!run(bundle, "init", x, y, NULL, state, NULL, &status), "init", &status);
  for (i = 1; i <= 3; i++) {
    expect(!run(bundle, "step", x, y, &steps, state, NULL, &status), "step", &status);
    expect(steps == i && y[3] == 4.0f * (float)(i + 1), "what step gives", &status);
  }
  expect(!tfc_state_get(bundle, state, "steps", &steps, &status) && steps == 3, "get", &status);
  expect(tfc_state_get(bundle, other, "steps", &steps, &status) == TFC_ERROR_UNINITIALIZED,
         "get of nothing", &status);
  expect(!tfc_state_set(bundle, state, "total", x, &status), "set", &status);
  expect(!run(bundle, "peek", x, y, NULL, state, NULL, &status) && y[2] == 3.0f, "peek", &status);
  expect(tfc_state_set(bundle, state, "none", x, &status) == TFC_ERROR_ARGUMENT &&
             strstr(status.message, "no variable \"none\""),
         "set of no variable", &status);
  expect(tfc_state_init(bundle, (char *)state + 8, &status) == TFC_ERROR_ARGUMENT,
         "state that is not aligned", &status);
  free(state);
  free(other);
}

/* A host of one call, which keeps what it is given. */
typedef struct keeper {
  float kept[4];
  int32_t answer;
} keeper;

static int32_t keep(void *self, int32_t number, const int64_t *dims, const void *const *inputs,
                    void *const *outputs, tfc_error *error) {
  keeper *k = (keeper *)self;
  (void)outputs;
  (void)error;
  if (number != 0 || dims[0] != 4) return TFC_ERROR_HOST;
  memcpy(k->kept, inputs[0], sizeof k->kept);
  return k->answer;
}

static void check_host(const tfc_bundle *bundle) {
  const float x[4] = {1, 2, 3, 4};
  float y[4];
  keeper k = {{0, 0, 0, 0}, TFC_OK};
  tfc_host host;
  tfc_status status;
  int32_t code = run(bundle, "put", x, y, NULL, NULL, NULL, &status);
  host.self = &k;
  host.call = keep;
  expect(code == TFC_ERROR_ARGUMENT && strstr(status.message, "put has 1 ops"),
         "a run without a host", &status);
  expect(!run(bundle, "put", x, y, NULL, NULL, &host, &status), "put", &status);
  expect(k.kept[1] == -2.0f && y[1] == -2.0f, "what the host got", &status);
  k.answer = TFC_ERROR_HOST;
  code = run(bundle, "put", x, y, NULL, NULL, &host, &status);
  expect(code == TFC_ERROR_HOST && strstr(status.message, "the host stopped the run"),
         "a host that refuses", &status);
}

int main(int argc, char **argv) {
  tfc_bundle *counter, *queue;
  tfc_status status;
  if (argc < 3 || tfc_open(argv[1], NULL, &counter, &status) ||
      tfc_open(argv[2], NULL, &queue, &status))
    return 2;
  check_counter(counter);
  check_host(queue);
  tfc_close(counter);
  tfc_close(queue);
  printf("%d failures\n", failures);
  return failures != 0;
}
