/* tfc_abi.h: what generated code, the thread pool and the loaders agree on.
 *
 * A bundle's shared object exports tfc_bundle_query alone (support.c defines it). Generated code
 * defines tfc_functions and tfc_function_count; the loaders fill tfc_call and format tfc_error.
 * A change of any struct here raises TFC_ABI.
 */
#ifndef TFC_ABI_H
#define TFC_ABI_H

#include <stdint.h>

#define TFC_ABI 2u

/* Why a function refused. `bind` and `prepare` give the first group, `run` the second. */
enum {
  TFC_OK = 0,
  /* Input `where`, axis `axis` has size `actual`. */
  TFC_ERROR_DIMENSION = 1, /* it must be `expected` (a constant or an earlier binding) */
  TFC_ERROR_MINIMUM = 2,   /* it must be at least `expected` */
  TFC_ERROR_MAXIMUM = 3,   /* it must be at most `expected` */
  TFC_ERROR_MULTIPLE = 4,  /* it must be a multiple of `expected` */
  /* No single axis is at fault: `node` says what must hold. */
  TFC_ERROR_RELATION = 5, /* the two sides are `actual` and `expected` */
  TFC_ERROR_SIZE = 6,     /* a size is negative or does not fit 64 bits */

  /* Found while running, in `node`. */
  TFC_ERROR_INDEX = 16,      /* index `actual` along `axis` lies outside 0..`expected`-1 */
  TFC_ERROR_DATA_SIZE = 17,  /* a size computed from data is `actual`, the limit `expected` */
  TFC_ERROR_TRIP_COUNT = 18, /* a loop would run `actual` times, the limit is `expected` */
  TFC_ERROR_VALUE = 19,      /* a value computed from data, `actual`, is not allowed */
  TFC_ERROR_UNINITIALIZED = 20, /* variable number `where` is read before it is assigned */
  TFC_ERROR_HOST = 21           /* the caller's tfc_host refused; it knows why */
};

/* Filled by the callee when it returns another code than TFC_OK; the caller has set code to TFC_OK.
 * The strings are static. */
typedef struct tfc_error {
  int32_t code;
  int32_t where; /* index of the input for TFC_ERROR_DIMENSION to _MULTIPLE, else -1 */
  int64_t axis;
  int64_t actual;
  int64_t expected;
  const char *node; /* the user's own names of the nodes, or NULL */
} tfc_error;

/* Threads that work on one loop at a time. Calls fn(arg, 0..n-1), in any order, even one after
 * another, and returns when all have returned. `begin` and `end` may be NULL; the loaders call them
 * around a run (between them workers may wait actively), generated code never does. */
typedef struct tfc_executor {
  void *self;
  int32_t threads; /* the most that work at once, the caller included; a hint for splitting */
  int32_t reserved;
  void (*parallel_for)(void *self, int64_t n, void (*fn)(void *arg, int64_t index), void *arg);
  void (*begin)(void *self);
  void (*end)(void *self);
} tfc_executor;

/* State that lasts between calls: a variable's memory, dense and aligned to 64 bytes, and one byte
 * that is not 0 once it was assigned. Runs that share variables do not run at the same time. */
typedef struct tfc_variable {
  uint8_t *data;
  uint8_t *assigned;
} tfc_variable;

/* What compiled code cannot do itself (queues, files, messages): the caller's function. `number` is
 * that of the call in its function. dims: the sizes of all inputs, then of all outputs. Outputs are
 * dense memory to write. Returns TFC_OK, or another code that ends the run. It is called on the
 * thread of the run. */
typedef struct tfc_host {
  void *self;
  int32_t (*call)(void *self, int32_t number, const int64_t *dims, const void *const *inputs,
                  void *const *outputs, tfc_error *error);
} tfc_host;

/* One run. Weights and scratch are aligned to 64 bytes; inputs and outputs to their element, and
 * dense; outputs overlap nothing else. Pointers to empty tensors may be anything but NULL. */
typedef struct tfc_call {
  const int64_t *symbols;
  const void *const *inputs;
  void *const *outputs;
  const uint8_t *weights;
  uint8_t *scratch;
  const tfc_executor *executor; /* never NULL */
  uint64_t *kernel_ticks;       /* NULL, or kernel_count sums of nanoseconds to add to */
  const tfc_variable *variables; /* those of the bundle; may be NULL where `stateful` is 0 */
  const tfc_host *host;          /* may be NULL where `host_count` is 0 */
} tfc_call;

/* A function, reentrant in all its parts. Each part returns a code, TFC_OK or that in the error. */
typedef struct tfc_function {
  const char *name;
  int32_t input_count;
  int32_t output_count;
  int32_t symbol_count;
  int32_t kernel_count;
  int32_t input_dim_count;  /* of all inputs together */
  int32_t output_dim_count; /* of all outputs together */
  int32_t host_count;       /* calls of tfc_host that stand in it */
  int32_t stateful;         /* not 0: it reads or writes variables, compiled or in the host */
  /* Binds symbols and checks. input_dims: the sizes of all inputs, one after another, none
   * negative. */
  int32_t (*bind)(const int64_t *input_dims, int64_t *symbols, tfc_error *error);
  /* output_dims: the sizes of all outputs, one after another. */
  int32_t (*prepare)(const int64_t *symbols, int64_t *output_dims, int64_t *scratch_bytes,
                     tfc_error *error);
  int32_t (*run)(const tfc_call *call, tfc_error *error);
} tfc_function;

typedef struct tfc_variable_info {
  const char *name;
  int64_t bytes;
} tfc_variable_info;

typedef struct tfc_code {
  uint32_t abi;
  uint32_t function_count;
  const tfc_function *functions;
  uint64_t variable_count;
  const tfc_variable_info *variables;
  /* The process's threads, at most `threads` of them at work (0: as many as the process may use).
   * The answer lives as long as the shared object does. */
  const tfc_executor *(*pool)(int32_t threads);
  /* Ends and joins the workers of this object's pool; no run may be in flight. */
  void (*pool_stop)(void);
  /* function->run between the executor's begin and end. */
  int32_t (*call)(const tfc_function *function, const tfc_call *call, tfc_error *error);
} tfc_code;

#endif /* TFC_ABI_H */
