/* support.c: the C part of every bundle's shared object besides the pool: the query, what generated
 * code calls (tfc_ticks, tfc_raise), and the conversions that LLVM expects from a compiler's
 * library. */
#include <stdint.h>
#include <time.h>

#include "tfc_abi.h"

/* Defined by generated code. */
extern const tfc_function tfc_functions[];
extern const int32_t tfc_function_count;
extern const tfc_variable_info tfc_variables[];
extern const int32_t tfc_variable_count;

/* Defined by pool.c. */
const tfc_executor *tfc_pool(int32_t threads);
void tfc_pool_stop(void);

/* Nanoseconds of a clock that never runs backwards, for tfc_call.kernel_ticks. */
uint64_t tfc_ticks(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Fills the error unless another thread has; returns the code. For kernels, whose other programs go
 * on: the function looks at error->code after the loop. */
int32_t tfc_raise(tfc_error *error, int32_t code, int32_t where, int64_t axis, int64_t actual,
                  int64_t expected, const char *node) {
  int32_t none = TFC_OK;
  if (!__atomic_compare_exchange_n(&error->code, &none, -1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    return code;
  error->where = where;
  error->axis = axis;
  error->actual = actual;
  error->expected = expected;
  error->node = node;
  __atomic_store_n(&error->code, code, __ATOMIC_SEQ_CST);
  return code;
}

static int32_t call_function(const tfc_function *function, const tfc_call *call, tfc_error *error) {
  const tfc_executor *executor = call->executor;
  error->code = TFC_OK;
  if (executor->begin) executor->begin(executor->self);
  int32_t code = function->run(call, error);
  if (executor->end) executor->end(executor->self);
  return code;
}

__attribute__((visibility("default"))) const tfc_code *tfc_bundle_query(uint32_t abi) {
  static tfc_code code; /* written with the same values by every caller */
  if (abi != TFC_ABI) return 0;
  code.abi = TFC_ABI;
  code.function_count = (uint32_t)tfc_function_count;
  code.functions = tfc_functions;
  code.variable_count = (uint64_t)tfc_variable_count;
  code.variables = tfc_variables;
  code.pool = tfc_pool;
  code.pool_stop = tfc_pool_stop;
  code.call = call_function;
  return &code;
}

/* Conversions of 16-bit floats. LLVM calls these by name where the processor has no instruction
 * (f16 on x86-64-v2). Round to nearest, ties to even; NaN stays NaN and becomes quiet. */

typedef union {
  float value;
  uint32_t bits;
} float_bits;

typedef union {
  double value;
  uint64_t bits;
} double_bits;

typedef union {
  _Float16 value;
  uint16_t bits;
} half_bits;

typedef union {
  __bf16 value;
  uint16_t bits;
} brain_bits;

/* Rounds to a format of `fraction` bits of fraction, with the given least normal exponent. */
static uint16_t narrow(double x, int fraction, int least, int bias, uint16_t infinity) {
  double_bits in = {.value = x};
  uint16_t sign = (uint16_t)(in.bits >> 63 << 15);
  uint64_t magnitude = in.bits & 0x7fffffffffffffffu;
  if (magnitude > 0x7ff0000000000000u) return (uint16_t)(sign | infinity | 1u << (fraction - 1));
  int exponent = (int)(magnitude >> 52) - 1023;
  if (magnitude == 0x7ff0000000000000u || exponent > bias) return (uint16_t)(sign | infinity);
  if (exponent < least - fraction - 1) return sign;
  uint64_t significand = (magnitude & 0xfffffffffffffu) | 0x10000000000000u;
  int drop = 52 - fraction + (exponent < least ? least - exponent : 0);
  uint64_t kept = significand >> drop, rest = significand & ((1ull << drop) - 1),
           half = 1ull << (drop - 1);
  kept += rest > half || (rest == half && (kept & 1));
  /* A carry out of the fraction moves into the exponent by itself, up to infinity. */
  if (exponent >= least) kept += (uint64_t)(exponent + bias - 1) << fraction;
  return (uint16_t)(sign | kept);
}

_Float16 __truncdfhf2(double x) {
  half_bits out = {.bits = narrow(x, 10, -14, 15, 0x7c00)};
  return out.value;
}

_Float16 __truncsfhf2(float x) { return __truncdfhf2((double)x); }

__bf16 __truncdfbf2(double x) {
  brain_bits out = {.bits = narrow(x, 7, -126, 127, 0x7f80)};
  return out.value;
}

__bf16 __truncsfbf2(float x) { return __truncdfbf2((double)x); }

float __extendhfsf2(_Float16 x) {
  half_bits in = {.value = x};
  uint32_t sign = (uint32_t)(in.bits & 0x8000u) << 16;
  uint32_t exponent = in.bits >> 10 & 31u, fraction = in.bits & 1023u;
  float_bits out;
  if (exponent == 31u) {
    out.bits = sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0u);
    return out.value;
  }
  if (exponent) {
    out.bits = sign | (exponent + 112u) << 23 | fraction << 13;
    return out.value;
  }
  float_bits magnitude = {.value = (float)fraction * 0x1p-24f};
  out.bits = sign | magnitude.bits;
  return out.value;
}

double __extendhfdf2(_Float16 x) { return (double)__extendhfsf2(x); }
