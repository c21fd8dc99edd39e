/* stand_in.c: hand-written code in place of generated code, for tests of writer and loaders.
 *
 * main(x: f32[B,4], y: f32[B,4], pick: i64[]) -> (sum: f32[B,4], row: f32[4])
 *   sum = x + y + bias, bias being the first four floats of the weights; row = sum[pick]
 * turn(v: bf16[N]) -> (w: bf16[N])   reversed
 * variable memory: f32[2,3], which no function uses
 * Dimension B is 1 to 1000. Padded copies of rows go through scratch, so that its size matters.
 */
#include "tfc_abi.h"

uint64_t tfc_ticks(void);

static int32_t fail(tfc_error *e, int32_t code, int32_t where, int64_t axis, int64_t actual,
                    int64_t expected, const char *node) {
  tfc_error filled = {code, where, axis, actual, expected, node};
  *e = filled;
  return code;
}

static int32_t bind_main(const int64_t *d, int64_t *symbols, tfc_error *e) {
  if (d[0] < 1) return fail(e, TFC_ERROR_MINIMUM, 0, 0, d[0], 1, 0);
  if (d[0] > 1000) return fail(e, TFC_ERROR_MAXIMUM, 0, 0, d[0], 1000, 0);
  if (d[1] != 4) return fail(e, TFC_ERROR_DIMENSION, 0, 1, d[1], 4, 0);
  if (d[2] != d[0]) return fail(e, TFC_ERROR_DIMENSION, 1, 0, d[2], d[0], 0);
  if (d[3] != 4) return fail(e, TFC_ERROR_DIMENSION, 1, 1, d[3], 4, 0);
  symbols[0] = d[0];
  return TFC_OK;
}

static int32_t prepare_main(const int64_t *symbols, int64_t *dims, int64_t *scratch_bytes,
                            tfc_error *e) {
  (void)e;
  dims[0] = symbols[0];
  dims[1] = 4;
  dims[2] = 4;
  *scratch_bytes = symbols[0] * 64;
  return TFC_OK;
}

static void add_row(void *arg, int64_t row) {
  const tfc_call *call = arg;
  const float *x = call->inputs[0], *y = call->inputs[1];
  const float *bias = (const float *)call->weights;
  volatile float *staged = (float *)(call->scratch + row * 64);
  float *sum = call->outputs[0];
  for (int i = 0; i < 4; i++) staged[i] = x[row * 4 + i] + y[row * 4 + i];
  for (int i = 0; i < 4; i++) sum[row * 4 + i] = staged[i] + bias[i];
}

static int32_t run_main(const tfc_call *call, tfc_error *e) {
  const tfc_executor *executor = call->executor;
  int64_t rows = call->symbols[0], pick = *(const int64_t *)call->inputs[2];
  uint64_t start = call->kernel_ticks ? tfc_ticks() : 0;
  if ((uint64_t)call->scratch % 64 || (uint64_t)call->weights % 64)
    return fail(e, TFC_ERROR_VALUE, -1, -1, -1, 0, "alignment");
  executor->parallel_for(executor->self, rows, add_row, (void *)call);
  if (call->kernel_ticks) call->kernel_ticks[0] += tfc_ticks() - start;
  if (pick < 0 || pick >= rows)
    return fail(e, TFC_ERROR_INDEX, 1, 0, pick, rows, "model.onnx:/gather");
  for (int i = 0; i < 4; i++)
    ((float *)call->outputs[1])[i] = ((const float *)call->outputs[0])[pick * 4 + i];
  if (call->kernel_ticks) call->kernel_ticks[1] += tfc_ticks() - start;
  return TFC_OK;
}

static int32_t bind_turn(const int64_t *d, int64_t *symbols, tfc_error *e) {
  (void)e;
  symbols[0] = d[0];
  return TFC_OK;
}

static int32_t prepare_turn(const int64_t *symbols, int64_t *dims, int64_t *scratch_bytes,
                            tfc_error *e) {
  (void)e;
  dims[0] = symbols[0];
  *scratch_bytes = 0;
  return TFC_OK;
}

static int32_t run_turn(const tfc_call *call, tfc_error *e) {
  const uint16_t *v = call->inputs[0];
  uint16_t *w = call->outputs[0];
  int64_t n = call->symbols[0];
  (void)e;
  for (int64_t i = 0; i < n; i++) w[i] = v[n - 1 - i];
  return TFC_OK;
}

const tfc_function tfc_functions[] = {
    {"main", 3, 2, 1, 2, 4, 3, 0, 0, bind_main, prepare_main, run_main},
    {"turn", 1, 1, 1, 0, 1, 1, 0, 0, bind_turn, prepare_turn, run_turn},
};
const int32_t tfc_function_count = 2;
const tfc_variable_info tfc_variables[] = {{"memory", 24}};
const int32_t tfc_variable_count = 1;
