/* tfc.h: opens and runs tfc bundles (*.tfb) from C99 or C++. Declarations and loader in one file.
 *
 *   #define TFC_IMPLEMENTATION   in one source file, before anything else that it includes
 *   #include "tfc.h"
 *
 * Needs Linux (dlopen, mmap; memfd_create or a writable directory for temporary files); older libcs
 * want -ldl -lpthread. The order of use: tfc_open, tfc_find_function, tfc_bind (input shapes to
 * symbols), tfc_prepare (symbols to output shapes and scratch size), tfc_run (as often as wanted),
 * tfc_close. All but tfc_open and tfc_close may be called from several threads at once; memory is
 * the caller's. Functions return TFC_OK or an error code, with a message in the status.
 *
 * Functions that use variables need state: memory of tfc_state_bytes, made ready once by
 * tfc_state_init, which tfc_run_with takes. Runs on one state happen one after another.
 */
#if defined(TFC_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#ifndef TFC_H
#define TFC_H

#include <stddef.h>

#include "tfc_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors of the loader; those of compiled functions are above. */
enum {
  TFC_ERROR_SYSTEM = 64,   /* a file or memory could not be had */
  TFC_ERROR_DAMAGED = 65,  /* not a bundle, or damaged */
  TFC_ERROR_TARGET = 66,   /* no code in the bundle runs on this processor */
  TFC_ERROR_ARGUMENT = 67, /* the caller's mistake */
  TFC_ERROR_PIN = 68       /* not the bundle with the SHA-256 asked for */
};

/* Types of elements. bf16 is the upper half of a float, bool one byte of 0 or 1. */
enum {
  TFC_F64, TFC_F32, TFC_F16, TFC_BF16, TFC_I8, TFC_I16, TFC_I32, TFC_I64,
  TFC_U8, TFC_U16, TFC_U32, TFC_U64, TFC_BOOL
};

typedef struct tfc_status {
  int32_t code;
  char message[508];
} tfc_status;

typedef struct tfc_options {
  int32_t threads;     /* at work at once; 0: as many as the process may use */
  int32_t check_all;   /* not 0: hash every member of the file, weights too */
  const char *target;  /* the code to use; NULL: the best that this processor runs */
  const char *sha256;  /* the manifest's hash in 64 hexadecimal digits, or NULL */
} tfc_options;

typedef struct tfc_tensor {
  const char *name;
  int32_t dtype;
  int32_t rank;
  const int64_t *dims;          /* -1 where the size is not fixed */
  const char *const *dim_names; /* a symbol or an expression; "" where the size is fixed */
} tfc_tensor;

typedef struct tfc_symbol {
  const char *name;   /* the model's own */
  const char *symbol; /* in tfc's text */
  int64_t minimum;
  int64_t maximum; /* INT64_MAX: none */
} tfc_symbol;

typedef struct tfc_bundle tfc_bundle;

typedef struct tfc_signature {
  const char *name;
  int32_t input_count;
  int32_t output_count;
  int32_t symbol_count;
  int32_t kernel_count;
  int32_t input_dim_count;  /* of all inputs together */
  int32_t output_dim_count; /* of all outputs together */
  const tfc_tensor *inputs;
  const tfc_tensor *outputs;
  const tfc_symbol *symbols;
  const tfc_bundle *bundle;
  const tfc_function *function;
  int32_t host_count; /* ops that compiled code cannot run: see tfc_host */
  int32_t stateful;   /* not 0: it needs state */
} tfc_signature;

/* What a run may need besides memory for its tensors; all may be NULL where it does not. */
typedef struct tfc_environment {
  const tfc_executor *executor; /* NULL: the bundle's threads */
  void *state;                  /* see tfc_state_init */
  const tfc_host *host;         /* runs queues, files and messages */
} tfc_environment;

/* Opens a file. `options` and `status` may be NULL. */
int32_t tfc_open(const char *path, const tfc_options *options, tfc_bundle **bundle,
                 tfc_status *status);

/* Opens a bundle in memory, which has to stay as it is until tfc_close. */
int32_t tfc_open_memory(const void *data, size_t size, const tfc_options *options,
                        tfc_bundle **bundle, tfc_status *status);

/* No run may be in flight. The last bundle to close ends the threads. NULL is allowed. */
void tfc_close(tfc_bundle *bundle);

int32_t tfc_function_count(const tfc_bundle *bundle);
const tfc_signature *tfc_function_at(const tfc_bundle *bundle, int32_t number);

/* NULL where there is none of that name. */
const tfc_signature *tfc_find_function(const tfc_bundle *bundle, const char *name);

/* The name of the code in use, like "x86-64-v3". */
const char *tfc_target(const tfc_bundle *bundle);

/* Checks the sizes of all inputs, one after another (input_dim_count of them), and fills `symbols`
 * (symbol_count of them). */
int32_t tfc_bind(const tfc_signature *function, const int64_t *input_dims, int64_t *symbols,
                 tfc_status *status);

/* Fills the sizes of all outputs (output_dim_count of them), and the bytes of scratch for a run. */
int32_t tfc_prepare(const tfc_signature *function, const int64_t *symbols, int64_t *output_dims,
                    int64_t *scratch_bytes, tfc_status *status);

/* Inputs and outputs are dense and aligned to their element; outputs overlap nothing else. Scratch
 * is aligned to 64 bytes, and no other run's at the same time. executor: NULL takes the bundle's
 * threads. */
int32_t tfc_run(const tfc_signature *function, const int64_t *symbols, const void *const *inputs,
                void *const *outputs, void *scratch, const tfc_executor *executor,
                tfc_status *status);

/* The same, for functions with variables or host ops too. No other run uses the state meanwhile. */
int32_t tfc_run_with(const tfc_signature *function, const int64_t *symbols,
                     const void *const *inputs, void *const *outputs, void *scratch,
                     const tfc_environment *environment, tfc_status *status);

int32_t tfc_variable_count(const tfc_bundle *bundle);
const tfc_tensor *tfc_variable_at(const tfc_bundle *bundle, int32_t number);

/* The bytes of a bundle's state; 0 where it has no variables. */
size_t tfc_state_bytes(const tfc_bundle *bundle);

/* Makes memory, aligned to 64 bytes, a state in which nothing is assigned. It must stay in place. */
int32_t tfc_state_init(const tfc_bundle *bundle, void *state, tfc_status *status);

/* Sets a variable, or copies its value; `data` is dense. TFC_ERROR_UNINITIALIZED where it has none.
 * No run uses the state meanwhile. */
int32_t tfc_state_set(const tfc_bundle *bundle, void *state, const char *name, const void *data,
                      tfc_status *status);
int32_t tfc_state_get(const tfc_bundle *bundle, const void *state, const char *name, void *data,
                      tfc_status *status);

/* Bytes of an element, and the name of the type ("f32"); 0 and "" for no type. */
size_t tfc_element_bytes(int32_t dtype);
const char *tfc_dtype_name(int32_t dtype);

#ifdef __cplusplus
}
#endif
#endif /* TFC_H */

#if defined(TFC_IMPLEMENTATION) && !defined(TFC_IMPLEMENTED)
#define TFC_IMPLEMENTED

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---- */

static int32_t tfc__fail(tfc_status *status, int32_t code, const char *format, ...) {
  va_list values;
  if (!status) return code;
  status->code = code;
  va_start(values, format);
  vsnprintf(status->message, sizeof status->message, format, values);
  va_end(values);
  return code;
}

static int32_t tfc__succeed(tfc_status *status) {
  if (status) {
    status->code = TFC_OK;
    status->message[0] = 0;
  }
  return TFC_OK;
}

/* ---- SHA-256 (FIPS 180-4) ---- */

static uint32_t tfc__rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void tfc__sha256_block(uint32_t state[8], const uint8_t *block) {
  static const uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t w[64], v[8];
  int i;
  for (i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
           (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  for (; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (tfc__rotate(a, 7) ^ tfc__rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (tfc__rotate(b, 17) ^ tfc__rotate(b, 19) ^ b >> 10);
  }
  memcpy(v, state, sizeof v);
  for (i = 0; i < 64; i++) {
    uint32_t s1 = tfc__rotate(v[4], 6) ^ tfc__rotate(v[4], 11) ^ tfc__rotate(v[4], 25);
    uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
    uint32_t t1 = v[7] + s1 + choice + k[i] + w[i];
    uint32_t s0 = tfc__rotate(v[0], 2) ^ tfc__rotate(v[0], 13) ^ tfc__rotate(v[0], 22);
    uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (i = 0; i < 8; i++) state[i] += v[i];
}

static void tfc__sha256(const uint8_t *data, size_t size, uint8_t digest[32]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t tail[128];
  size_t rest = size % 64, end = rest < 56 ? 64 : 128, i;
  uint64_t bits = (uint64_t)size * 8;
  for (i = 0; i + 64 <= size; i += 64) tfc__sha256_block(state, data + i);
  memset(tail, 0, sizeof tail);
  memcpy(tail, data + (size - rest), rest);
  tail[rest] = 0x80;
  for (i = 0; i < 8; i++) tail[end - 1 - i] = (uint8_t)(bits >> 8 * i);
  for (i = 0; i < end; i += 64) tfc__sha256_block(state, tail + i);
  for (i = 0; i < 32; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static int tfc__digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* 64 hexadecimal digits to 32 bytes; 0 where they are not that. */
static int tfc__from_hex(const char *text, uint8_t digest[32]) {
  int i;
  for (i = 0; i < 32; i++) {
    int high = tfc__digit(text[2 * i]);
    int low = high < 0 ? -1 : tfc__digit(text[2 * i + 1]);
    if (low < 0) return 0;
    digest[i] = (uint8_t)(high << 4 | low);
  }
  return 1;
}

/* ---- the file's parts ---- */

#define TFC__MAXIMUM_NAME 4096
#define TFC__MAXIMUM_RANK 32
#define TFC__MAXIMUM_INDEX ((uint64_t)64 << 20)

typedef struct tfc__extent {
  uint64_t offset;
  uint64_t size;
  uint8_t sha256[32];
} tfc__extent;

typedef struct tfc__library {
  void *handle;
  int file; /* stays open while the library is loaded, or -1: see tfc__load_library */
  const tfc_code *code;
} tfc__library;

struct tfc_bundle {
  const uint8_t *data;
  size_t size;
  int mapped;     /* data is our mapping of a file */
  uint8_t *index; /* our copy */
  const char *strings;
  uint64_t string_bytes;
  int32_t function_count;
  const char *target;
  const uint8_t *weights;
  void *weights_copy;
  tfc_signature *signatures;
  tfc_tensor *tensors;
  const tfc_tensor *variables; /* the last of the tensors */
  int32_t variable_count;
  tfc_symbol *symbols;
  int64_t *dims;
  const char **dim_names;
  tfc__library *library;
  const tfc_executor *executor;
};

/* Sizes of index.bin's records; see index.py for their fields. */
enum { TFC__MEMBERS, TFC__TARGETS, TFC__FUNCTIONS, TFC__TENSORS, TFC__SYMBOLS, TFC__DIMS,
       TFC__FEATURES, TFC__TABLES };

typedef struct tfc__tables {
  uint32_t count[TFC__TABLES];
  const uint8_t *at[TFC__TABLES];
} tfc__tables;

static uint32_t tfc__u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t tfc__u64(const uint8_t *at) {
  return (uint64_t)tfc__u32(at) | (uint64_t)tfc__u32(at + 4) << 32;
}

static int32_t tfc__damaged(tfc_status *status, const char *what) {
  return tfc__fail(status, TFC_ERROR_DAMAGED, "the bundle is damaged: %s", what);
}

static int tfc__inside(uint64_t offset, uint64_t size, uint64_t whole) {
  return offset <= whole && size <= whole - offset;
}

static int tfc__is_capital(char c) { return c >= 'A' && c <= 'F'; }

static int tfc__parse_number(const char *text, uint64_t *value) {
  int i;
  *value = 0;
  for (i = 0; i < 16; i++) {
    int digit = tfc__digit(text[i]);
    if (digit < 0 || tfc__is_capital(text[i])) return 0;
    *value = *value << 4 | (uint64_t)digit;
  }
  return text[16] == ' ';
}

/* "label offset size sha256\n", without capitals: there is one way to write it */
static int tfc__parse_extent(const char **text, const char *label, tfc__extent *extent) {
  size_t length = strlen(label);
  const char *at = *text + length;
  int i;
  if (memcmp(*text, label, length) != 0) return 0;
  for (i = 34; i < 98; i++)
    if (tfc__is_capital(at[i])) return 0;
  *text = at + 17 + 17 + 65;
  return tfc__parse_number(at, &extent->offset) && tfc__parse_number(at + 17, &extent->size) &&
         tfc__from_hex(at + 34, extent->sha256) && at[98] == '\n';
}

static int32_t tfc__read_trailer(const tfc_bundle *b, tfc__extent *index, tfc__extent *manifest,
                                 tfc_status *status) {
  static const char start[] = "tfc bundle 1\n";
  const size_t head = sizeof start - 1, size = head + 6 + 9 + 2 * 99;
  const char *text;
  if (b->size < size || memcmp(b->data + (b->size - size), start, head) != 0)
    return tfc__fail(status, TFC_ERROR_DAMAGED,
                     "this is no tfc bundle, or its end is missing: the trailer was not found");
  text = (const char *)b->data + (b->size - size) + head;
  if (!tfc__parse_extent(&text, "index ", index) ||
      !tfc__parse_extent(&text, "manifest ", manifest))
    return tfc__damaged(status, "its trailer cannot be read");
  if (index->size > TFC__MAXIMUM_INDEX || !tfc__inside(index->offset, index->size, b->size) ||
      manifest->size > TFC__MAXIMUM_INDEX ||
      !tfc__inside(manifest->offset, manifest->size, b->size))
    return tfc__damaged(status, "its trailer points outside the file");
  return TFC_OK;
}

static int tfc__hash_is(const uint8_t *data, uint64_t size, const uint8_t expected[32]) {
  uint8_t digest[32];
  tfc__sha256(data, (size_t)size, digest);
  return memcmp(digest, expected, 32) == 0;
}

/* A pinned manifest holds the index's hash; no other text of a manifest with this hash exists. */
static int32_t tfc__check_pin(const uint8_t *text, const tfc__extent *index,
                              const tfc__extent *manifest, const char *pin, tfc_status *status) {
  uint8_t wanted[32];
  char digits[65];
  uint64_t i;
  if (strlen(pin) != 64 || !tfc__from_hex(pin, wanted))
    return tfc__fail(status, TFC_ERROR_ARGUMENT, "sha256 is not 64 hexadecimal digits");
  if (memcmp(wanted, manifest->sha256, 32) != 0)
    return tfc__fail(status, TFC_ERROR_PIN, "the bundle's manifest has another SHA-256");
  for (i = 0; i < 32; i++) snprintf(digits + 2 * i, 3, "%02x", (unsigned)index->sha256[i]);
  for (i = 0; i + 64 <= manifest->size; i++)
    if (memcmp(text + i, digits, 64) == 0) return TFC_OK;
  return tfc__fail(status, TFC_ERROR_PIN, "the bundle's index is not the one of its manifest");
}

/* A copy that the caller frees, whose hash is right; NULL, with the status set, where it is not. */
static uint8_t *tfc__checked_copy(const tfc_bundle *b, const tfc__extent *extent, const char *what,
                                  tfc_status *status) {
  uint8_t *copy = (uint8_t *)malloc((size_t)extent->size + 1);
  if (!copy) {
    tfc__fail(status, TFC_ERROR_SYSTEM, "out of memory");
    return NULL;
  }
  memcpy(copy, b->data + extent->offset, (size_t)extent->size);
  if (tfc__hash_is(copy, extent->size, extent->sha256)) return copy;
  tfc__fail(status, TFC_ERROR_DAMAGED,
            "the bundle's %s is damaged: its SHA-256 differs from the trailer's", what);
  free(copy);
  return NULL;
}

static int32_t tfc__check_manifest(const tfc_bundle *b, const tfc__extent *index,
                                   const tfc__extent *manifest, const char *pin,
                                   tfc_status *status) {
  uint8_t *text = tfc__checked_copy(b, manifest, "manifest.json", status);
  int32_t code = TFC_OK;
  if (!text) return status->code;
  if (pin) code = tfc__check_pin(text, index, manifest, pin, status);
  free(text);
  return code;
}

/* ---- index.bin ---- */

static int32_t tfc__find_tables(tfc_bundle *b, uint64_t size, tfc__tables *tables,
                                tfc_status *status) {
  static const uint32_t bytes[TFC__TABLES] = {56, 16, 24, 16, 24, 16, 4};
  static const uint32_t limits[TFC__TABLES] = {1024,    64,      4096,   1u << 16,
                                               1u << 16, 1u << 20, 1u << 14};
  uint64_t position = 48;
  int i;
  if (size < 48 || memcmp(b->index, "tfcI", 4) != 0 || tfc__u32(b->index + 4) != 2)
    return tfc__damaged(status, "its index does not start like one of version 2");
  if (tfc__u32(b->index + 8) != TFC_ABI)
    return tfc__fail(status, TFC_ERROR_DAMAGED, "the bundle is for ABI %u, this loader for %u",
                     (unsigned)tfc__u32(b->index + 8), TFC_ABI);
  for (i = 0; i < TFC__TABLES; i++) {
    tables->count[i] = tfc__u32(b->index + 12 + 4 * i);
    if (tables->count[i] > limits[i])
      return tfc__damaged(status, "a table of its index is too long");
    tables->at[i] = b->index + position;
    position += (uint64_t)tables->count[i] * bytes[i];
    if (position > size) return tfc__damaged(status, "a table of its index is cut off");
  }
  if (tfc__u32(b->index + 44) > tables->count[TFC__TENSORS])
    return tfc__damaged(status, "its index has fewer tensors than variables");
  b->variable_count = (int32_t)tfc__u32(b->index + 44);
  b->string_bytes = tfc__u32(b->index + 40);
  if (position + b->string_bytes != size || (b->string_bytes && b->index[size - 1] != 0))
    return tfc__damaged(status, "its index's counts do not add up to its size");
  b->strings = (const char *)b->index + position;
  return TFC_OK;
}

/* NULL where there is no such string, or it is too long. */
static const char *tfc__string(const tfc_bundle *b, uint32_t offset) {
  if (offset >= b->string_bytes) return NULL;
  if (strlen(b->strings + offset) > TFC__MAXIMUM_NAME) return NULL;
  return b->strings + offset;
}

static int32_t tfc__read_members(const tfc_bundle *b, const tfc__tables *tables,
                                 tfc_status *status) {
  uint64_t end = 0;
  uint32_t i;
  for (i = 0; i < tables->count[TFC__MEMBERS]; i++) {
    const uint8_t *record = tables->at[TFC__MEMBERS] + 56 * i;
    uint64_t offset = tfc__u64(record), size = tfc__u64(record + 8);
    if (!tfc__string(b, tfc__u32(record + 52)))
      return tfc__damaged(status, "a member of the file has no name");
    if (offset < end || !tfc__inside(offset, size, b->size))
      return tfc__damaged(status, "a member lies outside the file or in another");
    end = offset + size;
  }
  return TFC_OK;
}

static int32_t tfc__hash_member(const tfc_bundle *b, const uint8_t *record, tfc_status *status) {
  if (tfc__hash_is(b->data + tfc__u64(record), tfc__u64(record + 8), record + 16)) return TFC_OK;
  return tfc__fail(status, TFC_ERROR_DAMAGED, "the bundle's %s is damaged: its SHA-256 differs",
                   tfc__string(b, tfc__u32(record + 52)));
}

/* Reads `rank` dimensions from the record at *dim on, into the bundle's arrays. */
static int tfc__read_dims(tfc_bundle *b, const tfc__tables *tables, uint32_t *dim, uint32_t rank) {
  uint32_t end = *dim + rank;
  if (rank > TFC__MAXIMUM_RANK || end > tables->count[TFC__DIMS]) return 0;
  for (; *dim < end; ++*dim) {
    const uint8_t *record = tables->at[TFC__DIMS] + 16 * (size_t)*dim;
    const char *name = tfc__string(b, tfc__u32(record + 8));
    int64_t size = (int64_t)tfc__u64(record);
    if (!name || size < -1 || (size == -1) != (name[0] != 0)) return 0;
    b->dims[*dim] = size;
    b->dim_names[*dim] = name;
  }
  return 1;
}

static int tfc__read_tensors(tfc_bundle *b, const tfc__tables *tables, uint32_t first,
                             uint32_t count, uint32_t *dim) {
  uint32_t i;
  for (i = first; i < first + count; i++) {
    const uint8_t *record = tables->at[TFC__TENSORS] + 16 * (size_t)i;
    tfc_tensor *tensor = b->tensors + i;
    tensor->name = tfc__string(b, tfc__u32(record));
    tensor->dtype = (int32_t)tfc__u32(record + 4);
    tensor->rank = (int32_t)tfc__u32(record + 8);
    tensor->dims = b->dims + *dim;
    tensor->dim_names = b->dim_names + *dim;
    if (!tensor->name || !tfc_element_bytes(tensor->dtype)) return 0;
    if (!tfc__read_dims(b, tables, dim, tfc__u32(record + 8))) return 0;
  }
  return 1;
}

static int tfc__read_symbols(tfc_bundle *b, const tfc__tables *tables, uint32_t first,
                             uint32_t count) {
  uint32_t i;
  for (i = first; i < first + count; i++) {
    const uint8_t *record = tables->at[TFC__SYMBOLS] + 24 * (size_t)i;
    tfc_symbol *symbol = b->symbols + i;
    symbol->name = tfc__string(b, tfc__u32(record));
    symbol->symbol = tfc__string(b, tfc__u32(record + 4));
    symbol->minimum = (int64_t)tfc__u64(record + 8);
    symbol->maximum = (int64_t)tfc__u64(record + 16);
    if (!symbol->name || !symbol->symbol || symbol->minimum < 0) return 0;
  }
  return 1;
}

#define TFC__MAXIMUM_ELEMENTS ((int64_t)1 << 40)

/* The bytes of a variable; -1 where its sizes are not numbers, or too large. */
static int64_t tfc__variable_bytes(const tfc_tensor *variable) {
  int64_t elements = 1;
  int32_t i;
  for (i = 0; i < variable->rank; i++) {
    const int64_t size = variable->dims[i];
    if (size < 0 || size > TFC__MAXIMUM_ELEMENTS) return -1;
    if (size && elements > TFC__MAXIMUM_ELEMENTS / size) return -1;
    elements *= size;
  }
  return elements * (int64_t)tfc_element_bytes(variable->dtype);
}

/* The tensors that are left after those of the functions. */
static int32_t tfc__read_variables(tfc_bundle *b, const tfc__tables *tables, uint32_t first,
                                   uint32_t *dim, tfc_status *status) {
  const uint32_t count = (uint32_t)b->variable_count;
  uint32_t i;
  if ((uint64_t)first + count != tables->count[TFC__TENSORS])
    return tfc__damaged(status, "its index holds tensors that nothing refers to");
  b->variables = b->tensors + first;
  if (!tfc__read_tensors(b, tables, first, count, dim))
    return tfc__damaged(status, "its index describes a variable that cannot be");
  for (i = 0; i < count; i++)
    if (tfc__variable_bytes(b->variables + i) < 0)
      return tfc__damaged(status, "its index describes a variable of no possible size");
  return TFC_OK;
}

static int32_t tfc__read_functions(tfc_bundle *b, const tfc__tables *tables, tfc_status *status) {
  uint32_t i, tensor = 0, symbol = 0, dim = 0;
  for (i = 0; i < tables->count[TFC__FUNCTIONS]; i++) {
    const uint8_t *record = tables->at[TFC__FUNCTIONS] + 24 * (size_t)i;
    uint32_t inputs = tfc__u32(record + 4), outputs = tfc__u32(record + 8),
             symbols = tfc__u32(record + 12), before = dim;
    tfc_signature *function = b->signatures + i;
    function->name = tfc__string(b, tfc__u32(record));
    if (!function->name || (uint64_t)tensor + inputs + outputs > tables->count[TFC__TENSORS] ||
        (uint64_t)symbol + symbols > tables->count[TFC__SYMBOLS])
      return tfc__damaged(status, "its index describes a function that is not there");
    function->input_count = (int32_t)inputs;
    function->output_count = (int32_t)outputs;
    function->symbol_count = (int32_t)symbols;
    function->inputs = b->tensors + tensor;
    function->outputs = b->tensors + tensor + inputs;
    function->symbols = b->symbols + symbol;
    function->bundle = b;
    function->host_count = (int32_t)tfc__u32(record + 16);
    function->stateful = (int32_t)tfc__u32(record + 20);
    if (function->host_count < 0 || function->host_count > 1 << 16 ||
        (function->stateful != 0 && function->stateful != 1))
      return tfc__damaged(status, "its index describes a function that cannot be");
    if (!tfc__read_tensors(b, tables, tensor, inputs, &dim))
      return tfc__damaged(status, "its index describes an input that cannot be");
    function->input_dim_count = (int32_t)(dim - before);
    before = dim;
    if (!tfc__read_tensors(b, tables, tensor + inputs, outputs, &dim) ||
        !tfc__read_symbols(b, tables, symbol, symbols))
      return tfc__damaged(status, "its index describes an output or a symbol that cannot be");
    function->output_dim_count = (int32_t)(dim - before);
    tensor += inputs + outputs;
    symbol += symbols;
  }
  if (tfc__read_variables(b, tables, tensor, &dim, status)) return TFC_ERROR_DAMAGED;
  if (symbol != tables->count[TFC__SYMBOLS] || dim != tables->count[TFC__DIMS])
    return tfc__damaged(status, "its index holds records that nothing refers to");
  b->function_count = (int32_t)tables->count[TFC__FUNCTIONS];
  return b->function_count ? TFC_OK : tfc__damaged(status, "it has no function");
}

static void *tfc__array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static int32_t tfc__allocate(tfc_bundle *b, const tfc__tables *tables, tfc_status *status) {
  b->signatures =
      (tfc_signature *)tfc__array(tables->count[TFC__FUNCTIONS], sizeof(tfc_signature));
  b->tensors = (tfc_tensor *)tfc__array(tables->count[TFC__TENSORS], sizeof(tfc_tensor));
  b->symbols = (tfc_symbol *)tfc__array(tables->count[TFC__SYMBOLS], sizeof(tfc_symbol));
  b->dims = (int64_t *)tfc__array(tables->count[TFC__DIMS], sizeof(int64_t));
  b->dim_names = (const char **)tfc__array(tables->count[TFC__DIMS], sizeof(char *));
  if (b->signatures && b->tensors && b->symbols && b->dims && b->dim_names) return TFC_OK;
  return tfc__fail(status, TFC_ERROR_SYSTEM, "out of memory");
}

/* ---- the processor ---- */

#if defined(__x86_64__)
#define TFC__MACHINE 62u
#define TFC__FEATURES_LABEL "flags"
#elif defined(__aarch64__)
#define TFC__MACHINE 183u
#define TFC__FEATURES_LABEL "Features"
#else
#define TFC__MACHINE 0u
#define TFC__FEATURES_LABEL "?"
#endif

/* The line of /proc/cpuinfo that names the features; "" where there is none. */
static void tfc__features(char *line, size_t size) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  int found = 0;
  while (file && !found && fgets(line, (int)size, file))
    found = strncmp(line, TFC__FEATURES_LABEL, sizeof TFC__FEATURES_LABEL - 1) == 0;
  if (file) fclose(file);
  if (!found) line[0] = 0;
}

static int tfc__has_feature(const char *features, const char *name) {
  static const char separators[] = " \t\n:";
  const size_t length = strlen(name);
  const char *at = features;
  while (*at) {
    const size_t word = strcspn(at, separators);
    if (word == length && strncmp(at, name, length) == 0) return length != 0;
    at += word;
    at += strspn(at, separators);
  }
  return 0;
}

/* A list of bounded length: what does not fit is left out. */
typedef struct tfc__list {
  char text[400];
  size_t used;
} tfc__list;

static void tfc__append(tfc__list *list, const char *text) {
  while (*text && list->used + 1 < sizeof list->text) list->text[list->used++] = *text++;
  list->text[list->used] = 0;
}

/* Appends why a target does not fit; returns whether it does fit. */
static int tfc__fits(const tfc_bundle *b, const uint8_t *target, const uint8_t *needed,
                     const char *features, tfc__list *reasons) {
  uint32_t i, missing = 0;
  const uint32_t count = tfc__u32(target + 12);
  const size_t before = reasons->used;
  if (before) tfc__append(reasons, "; ");
  tfc__append(reasons, tfc__string(b, tfc__u32(target)));
  if (tfc__u32(target + 8) != TFC__MACHINE) {
    tfc__append(reasons, " is for another family of processors");
    return 0;
  }
  for (i = 0; i < count; i++) {
    const char *name = tfc__string(b, tfc__u32(needed + 4 * (size_t)i));
    if (tfc__has_feature(features, name)) continue;
    tfc__append(reasons, missing++ ? ", " : " needs ");
    tfc__append(reasons, name);
  }
  if (missing) return 0;
  reasons->used = before;
  reasons->text[before] = 0;
  return 1;
}

static int32_t tfc__check_targets(const tfc_bundle *b, const tfc__tables *tables,
                                  tfc_status *status) {
  uint64_t features = 0;
  uint32_t i;
  for (i = 0; i < tables->count[TFC__TARGETS]; i++) {
    const uint8_t *record = tables->at[TFC__TARGETS] + 16 * (size_t)i;
    features += tfc__u32(record + 12);
    if (!tfc__string(b, tfc__u32(record)) || tfc__u32(record + 4) >= tables->count[TFC__MEMBERS])
      return tfc__damaged(status, "its index describes a target that is not there");
  }
  if (features != tables->count[TFC__FEATURES])
    return tfc__damaged(status, "its index's features do not add up");
  for (i = 0; i < tables->count[TFC__FEATURES]; i++)
    if (!tfc__string(b, tfc__u32(tables->at[TFC__FEATURES] + 4 * (size_t)i)))
      return tfc__damaged(status, "its index describes a feature without a name");
  return TFC_OK;
}

/* Sets the bundle's target and the record of its code's member to the first that fits. */
static int32_t tfc__choose_target(tfc_bundle *b, const tfc__tables *tables, const char *wanted,
                                  const uint8_t **code, tfc_status *status) {
  char features[8192];
  tfc__list reasons = {"", 0};
  const uint8_t *needed = tables->at[TFC__FEATURES];
  uint32_t i;
  if (tfc__check_targets(b, tables, status)) return TFC_ERROR_DAMAGED;
  tfc__features(features, sizeof features);
  for (i = 0; i < tables->count[TFC__TARGETS]; i++) {
    const uint8_t *record = tables->at[TFC__TARGETS] + 16 * (size_t)i;
    const char *name = tfc__string(b, tfc__u32(record));
    if ((!wanted || strcmp(wanted, name) == 0) &&
        tfc__fits(b, record, needed, features, &reasons)) {
      b->target = name;
      *code = tables->at[TFC__MEMBERS] + 56 * (size_t)tfc__u32(record + 4);
      return TFC_OK;
    }
    needed += 4 * (size_t)tfc__u32(record + 12);
  }
  if (wanted && !reasons.used)
    return tfc__fail(status, TFC_ERROR_TARGET, "the bundle holds no code for %.200s", wanted);
  return tfc__fail(status, TFC_ERROR_TARGET, "no code of the bundle runs on this processor: %s",
                   reasons.text);
}

/* ---- loading code ---- */

/* The threads are those of the first library, which stays loaded until the last bundle closes. */
static struct {
  int lock;
  int users;
  tfc__library *owner;
} tfc__pool;

static void tfc__lock_pool(void) {
  while (__atomic_exchange_n(&tfc__pool.lock, 1, __ATOMIC_ACQUIRE)) {
  }
}

static void tfc__unlock_pool(void) { __atomic_store_n(&tfc__pool.lock, 0, __ATOMIC_RELEASE); }

static void tfc__free_library(tfc__library *library) {
  if (library->handle) dlclose(library->handle);
  if (library->file >= 0) close(library->file);
  free(library);
}

static const tfc_executor *tfc__join_pool(tfc__library *library, int32_t threads) {
  const tfc_executor *executor;
  tfc__lock_pool();
  if (!tfc__pool.owner) tfc__pool.owner = library;
  tfc__pool.users++;
  executor = tfc__pool.owner->code->pool(threads);
  tfc__unlock_pool();
  return executor;
}

static void tfc__leave_pool(tfc__library *library) {
  tfc__library *owner = NULL;
  tfc__lock_pool();
  if (!--tfc__pool.users) {
    owner = tfc__pool.owner;
    owner->code->pool_stop();
    tfc__pool.owner = NULL;
  } else if (library == tfc__pool.owner) {
    library = NULL; /* until the last bundle closes */
  }
  tfc__unlock_pool();
  if (owner) tfc__free_library(owner);
  if (library && library != owner) tfc__free_library(library);
}

static int tfc__write_all(int file, const uint8_t *data, size_t size) {
  while (size) {
    ssize_t written = write(file, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return 1;
}

/* dlopen through a descriptor. It knows libraries by path: where another one was loaded through the
 * same number (and that was closed since), it would return that one, so a free number is looked
 * for, and ours stays open as long as the library is loaded. */
static void *tfc__open_descriptor(int *file) {
  int taken[16], count = 0;
  char path[64];
  void *handle = NULL;
  for (;;) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", *file);
    handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) break;
    dlclose(handle);
    handle = NULL;
    if (count == 16) break;
    taken[count++] = *file;
    *file = dup(*file);
    if (*file < 0) break;
  }
  if (*file >= 0 && count < 16) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  while (count) close(taken[--count]);
  return handle;
}

static void *tfc__open_temporary(const uint8_t *image, size_t size) {
  const char *directory = getenv("TMPDIR");
  char path[512];
  void *handle = NULL;
  int file;
  snprintf(path, sizeof path, "%.400s/tfc-XXXXXX", directory ? directory : "/tmp");
  file = mkstemp(path);
  if (file < 0) return NULL;
  if (tfc__write_all(file, image, size)) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  close(file);
  return handle;
}

static void tfc__load_library(tfc__library *library, const uint8_t *image, size_t size) {
  library->file = -1;
#ifdef SYS_memfd_create
  library->file = (int)syscall(SYS_memfd_create, "tfc-code", 1u /* close on exec */);
#endif
  if (library->file >= 0 && tfc__write_all(library->file, image, size))
    library->handle = tfc__open_descriptor(&library->file);
  if (library->handle) return;
  if (library->file >= 0) close(library->file);
  library->file = -1;
  library->handle = tfc__open_temporary(image, size);
}

static int32_t tfc__check_variables(const tfc_bundle *b, const tfc_code *code, tfc_status *status) {
  int32_t i;
  int same = code->variable_count == (uint64_t)b->variable_count;
  for (i = 0; same && i < b->variable_count; i++)
    same = strcmp(code->variables[i].name, b->variables[i].name) == 0 &&
           code->variables[i].bytes == tfc__variable_bytes(b->variables + i);
  return same ? TFC_OK : tfc__damaged(status, "its code and its index hold different variables");
}

static int32_t tfc__query(tfc_bundle *b, tfc__library *library, tfc_status *status) {
  const tfc_code *(*query)(uint32_t);
  void *symbol = dlsym(library->handle, "tfc_bundle_query");
  int32_t i;
  memcpy(&query, &symbol, sizeof query); /* the way that ISO C leaves for function pointers */
  if (!symbol || !(library->code = query(TFC_ABI)))
    return tfc__fail(status, TFC_ERROR_DAMAGED, "the bundle's code does not speak ABI %u", TFC_ABI);
  if (library->code->function_count != (uint32_t)b->function_count)
    return tfc__damaged(status, "its code and its index hold different functions");
  for (i = 0; i < b->function_count; i++) {
    const tfc_function *function = library->code->functions + i;
    tfc_signature *signature = b->signatures + i;
    if (strcmp(function->name, signature->name) != 0 ||
        function->input_count != signature->input_count ||
        function->output_count != signature->output_count ||
        function->symbol_count != signature->symbol_count ||
        function->input_dim_count != signature->input_dim_count ||
        function->output_dim_count != signature->output_dim_count ||
        function->host_count != signature->host_count ||
        function->stateful != signature->stateful)
      return tfc__damaged(status, "its code and its index describe different functions");
    signature->function = function;
    signature->kernel_count = function->kernel_count;
  }
  return tfc__check_variables(b, library->code, status);
}

/* Copies the code before it is hashed, so that what was checked is what runs. */
static int32_t tfc__load_code(tfc_bundle *b, const uint8_t *member, int32_t threads,
                              tfc_status *status) {
  const size_t size = (size_t)tfc__u64(member + 8);
  uint8_t *image = (uint8_t *)malloc(size ? size : 1);
  tfc__library *library = (tfc__library *)calloc(1, sizeof *library);
  int32_t code;
  if (!image || !library) {
    free(image);
    free(library);
    return tfc__fail(status, TFC_ERROR_SYSTEM, "out of memory");
  }
  library->file = -1;
  memcpy(image, b->data + tfc__u64(member), size);
  if (!tfc__hash_is(image, size, member + 16)) {
    code = tfc__hash_member(b, member, status);
    if (!code) code = tfc__damaged(status, "its code changed while it was read");
  } else {
    tfc__load_library(library, image, size);
    if (library->handle) {
      code = tfc__query(b, library, status);
    } else {
      const char *reason = dlerror();
      code = tfc__fail(status, TFC_ERROR_SYSTEM, "the bundle's code cannot be loaded: %.300s",
                       reason ? reason : "no memory or temporary file for it");
    }
  }
  free(image);
  if (code) {
    tfc__free_library(library);
    return code;
  }
  b->library = library;
  b->executor = tfc__join_pool(library, threads);
  return TFC_OK;
}

static int32_t tfc__find_weights(tfc_bundle *b, const tfc__tables *tables, tfc_status *status) {
  static const uint64_t none[16] = {0};
  uint64_t size = 0;
  uint32_t i;
  b->weights = (const uint8_t *)none + (64 - (uintptr_t)none % 64) % 64;
  for (i = 0; i < tables->count[TFC__MEMBERS]; i++) {
    const uint8_t *record = tables->at[TFC__MEMBERS] + 56 * (size_t)i;
    if (strcmp(tfc__string(b, tfc__u32(record + 52)), "weights") != 0) continue;
    b->weights = b->data + tfc__u64(record);
    size = tfc__u64(record + 8);
  }
  if ((uintptr_t)b->weights % 64 == 0) return TFC_OK;
  if (posix_memalign(&b->weights_copy, 64, (size_t)size + 1)) {
    b->weights_copy = NULL;
    return tfc__fail(status, TFC_ERROR_SYSTEM, "out of memory");
  }
  memcpy(b->weights_copy, b->weights, (size_t)size);
  b->weights = (const uint8_t *)b->weights_copy;
  return TFC_OK;
}

static int32_t tfc__check_members(const tfc_bundle *b, const tfc__tables *tables,
                                  tfc_status *status) {
  uint32_t i;
  int32_t code = TFC_OK;
  for (i = 0; i < tables->count[TFC__MEMBERS] && !code; i++)
    code = tfc__hash_member(b, tables->at[TFC__MEMBERS] + 56 * (size_t)i, status);
  return code;
}

static int32_t tfc__open(tfc_bundle *b, const tfc_options *options, tfc_status *status) {
  tfc__extent index, manifest;
  tfc__tables tables;
  const uint8_t *target;
  int32_t code = tfc__read_trailer(b, &index, &manifest, status);
  if (code) return code;
  code = tfc__check_manifest(b, &index, &manifest, options->sha256, status);
  if (code) return code;
  b->index = tfc__checked_copy(b, &index, "index.bin", status);
  if (!b->index) return status->code;
  code = tfc__find_tables(b, index.size, &tables, status);
  if (!code) code = tfc__allocate(b, &tables, status);
  if (!code) code = tfc__read_members(b, &tables, status);
  if (!code) code = tfc__read_functions(b, &tables, status);
  if (!code) code = tfc__choose_target(b, &tables, options->target, &target, status);
  if (!code && options->check_all) code = tfc__check_members(b, &tables, status);
  if (!code) code = tfc__find_weights(b, &tables, status);
  if (!code) code = tfc__load_code(b, target, options->threads, status);
  return code;
}

static int32_t tfc__open_data(const uint8_t *data, size_t size, int mapped,
                              const tfc_options *options, tfc_bundle **bundle,
                              tfc_status *status) {
  static const tfc_options defaults = {0, 0, NULL, NULL};
  tfc_bundle *b = (tfc_bundle *)calloc(1, sizeof *b);
  int32_t code;
  tfc_status unread;
  if (!status) status = &unread;
  *bundle = NULL;
  if (!b) {
    if (mapped) munmap((void *)(uintptr_t)data, size);
    return tfc__fail(status, TFC_ERROR_SYSTEM, "out of memory");
  }
  b->data = data;
  b->size = size;
  b->mapped = mapped;
  code = tfc__open(b, options ? options : &defaults, status);
  if (code) {
    tfc_close(b);
    return code;
  }
  *bundle = b;
  return tfc__succeed(status);
}

/* ---- the interface ---- */

int32_t tfc_open_memory(const void *data, size_t size, const tfc_options *options,
                        tfc_bundle **bundle, tfc_status *status) {
  return tfc__open_data((const uint8_t *)data, size, 0, options, bundle, status);
}

int32_t tfc_open(const char *path, const tfc_options *options, tfc_bundle **bundle,
                 tfc_status *status) {
  struct stat about;
  void *data;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *bundle = NULL;
  if (file < 0 || fstat(file, &about)) {
    if (file >= 0) close(file);
    return tfc__fail(status, TFC_ERROR_SYSTEM, "cannot open %.300s: %s", path, strerror(errno));
  }
  if (!S_ISREG(about.st_mode) || about.st_size == 0) {
    close(file);
    return tfc__fail(status, TFC_ERROR_DAMAGED, "%.300s is empty or no file", path);
  }
  data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (data == MAP_FAILED)
    return tfc__fail(status, TFC_ERROR_SYSTEM, "cannot map %.300s: %s", path, strerror(errno));
  return tfc__open_data((const uint8_t *)data, (size_t)about.st_size, 1, options, bundle, status);
}

void tfc_close(tfc_bundle *b) {
  if (!b) return;
  if (b->library) tfc__leave_pool(b->library);
  free(b->weights_copy);
  free(b->signatures);
  free(b->tensors);
  free(b->symbols);
  free(b->dims);
  free((void *)b->dim_names);
  free(b->index);
  if (b->mapped) munmap((void *)(uintptr_t)b->data, b->size);
  free(b);
}

int32_t tfc_function_count(const tfc_bundle *bundle) { return bundle->function_count; }

const tfc_signature *tfc_function_at(const tfc_bundle *bundle, int32_t number) {
  return number >= 0 && number < bundle->function_count ? bundle->signatures + number : NULL;
}

const tfc_signature *tfc_find_function(const tfc_bundle *bundle, const char *name) {
  int32_t i;
  for (i = 0; i < bundle->function_count; i++)
    if (strcmp(bundle->signatures[i].name, name) == 0) return bundle->signatures + i;
  return NULL;
}

const char *tfc_target(const tfc_bundle *bundle) { return bundle->target; }

static int32_t tfc__shape_error(const tfc_signature *f, const tfc_error *e, tfc_status *status) {
  static const char *const rules[] = {"", "", "at least ", "at most ", "a multiple of "};
  const char *node = e->node ? e->node : "";
  const tfc_tensor *tensor;
  if (e->code == TFC_ERROR_RELATION)
    return tfc__fail(status, e->code,
                     "the inputs' shapes do not fit: %.300s (%" PRId64 " against %" PRId64 ")",
                     node, e->actual, e->expected);
  if (e->code == TFC_ERROR_SIZE || e->where < 0 || e->where >= f->input_count)
    return tfc__fail(status, e->code, "%.300s: a size of %" PRId64 " is not possible", node,
                     e->actual);
  tensor = f->inputs + e->where;
  return tfc__fail(status, e->code,
                   "input \"%.200s\": dimension %" PRId64 " (%.100s) is %" PRId64
                   ", expected %s%" PRId64,
                   tensor->name, e->axis,
                   e->axis >= 0 && e->axis < tensor->rank ? tensor->dim_names[e->axis] : "",
                   e->actual, rules[e->code], e->expected);
}

static int32_t tfc__run_error(const tfc_bundle *b, const tfc_error *e, tfc_status *status) {
  const char *node = e->node ? e->node : "";
  if (e->code == TFC_ERROR_UNINITIALIZED && e->where >= 0 && e->where < b->variable_count)
    return tfc__fail(status, e->code,
                     "%.200s: the variable \"%.200s\" is not initialized: assign it first", node,
                     b->variables[e->where].name);
  if (e->code == TFC_ERROR_HOST)
    return tfc__fail(status, e->code, "%.300s: the host stopped the run", node);
  if (e->code == TFC_ERROR_INDEX)
    return tfc__fail(status, e->code,
                     "%.300s: index %" PRId64 " along axis %" PRId64
                     " is out of range; it must lie in 0..%" PRId64,
                     node, e->actual, e->axis, e->expected - 1);
  if (e->code == TFC_ERROR_DATA_SIZE)
    return tfc__fail(status, e->code,
                     "%.300s: a size computed from data is %" PRId64 ", the limit is %" PRId64,
                     node, e->actual, e->expected);
  if (e->code == TFC_ERROR_TRIP_COUNT)
    return tfc__fail(status, e->code,
                     "%.300s: a loop would run %" PRId64 " times, the limit is %" PRId64, node,
                     e->actual, e->expected);
  if (e->code == TFC_ERROR_VALUE)
    return tfc__fail(status, e->code, "%.300s: the value %" PRId64 " is not allowed", node,
                     e->actual);
  return tfc__fail(status, e->code, "%.300s: stopped with error %d (%" PRId64 ", %" PRId64 ")",
                   node, (int)e->code, e->actual, e->expected);
}

int32_t tfc_bind(const tfc_signature *function, const int64_t *input_dims, int64_t *symbols,
                 tfc_status *status) {
  tfc_error error;
  int32_t i;
  memset(&error, 0, sizeof error);
  for (i = 0; i < function->input_dim_count; i++)
    if (input_dims[i] < 0)
      return tfc__fail(status, TFC_ERROR_ARGUMENT, "a size of an input is negative");
  if (function->function->bind(input_dims, symbols, &error))
    return tfc__shape_error(function, &error, status);
  return tfc__succeed(status);
}

int32_t tfc_prepare(const tfc_signature *function, const int64_t *symbols, int64_t *output_dims,
                    int64_t *scratch_bytes, tfc_status *status) {
  tfc_error error;
  memset(&error, 0, sizeof error);
  if (function->function->prepare(symbols, output_dims, scratch_bytes, &error))
    return tfc__shape_error(function, &error, status);
  return tfc__succeed(status);
}

int32_t tfc_run(const tfc_signature *function, const int64_t *symbols, const void *const *inputs,
                void *const *outputs, void *scratch, const tfc_executor *executor,
                tfc_status *status) {
  tfc_environment environment = {NULL, NULL, NULL};
  environment.executor = executor;
  return tfc_run_with(function, symbols, inputs, outputs, scratch, &environment, status);
}

int32_t tfc_run_with(const tfc_signature *function, const int64_t *symbols,
                     const void *const *inputs, void *const *outputs, void *scratch,
                     const tfc_environment *environment, tfc_status *status) {
  const tfc_bundle *b = function->bundle;
  tfc_error error;
  tfc_call call;
  memset(&error, 0, sizeof error);
  if ((uintptr_t)scratch % 64)
    return tfc__fail(status, TFC_ERROR_ARGUMENT, "scratch is not aligned to 64 bytes");
  if (function->stateful && !environment->state)
    return tfc__fail(status, TFC_ERROR_ARGUMENT,
                     "%.200s uses variables: it needs state (tfc_state_init, tfc_run_with)",
                     function->name);
  if (function->host_count && !environment->host)
    return tfc__fail(status, TFC_ERROR_ARGUMENT,
                     "%.200s has %d ops that compiled code cannot run: it needs a tfc_host",
                     function->name, (int)function->host_count);
  call.symbols = symbols;
  call.inputs = inputs;
  call.outputs = outputs;
  call.weights = b->weights;
  call.scratch = (uint8_t *)scratch;
  call.executor = environment->executor ? environment->executor : b->executor;
  call.kernel_ticks = NULL;
  call.variables = (const tfc_variable *)environment->state;
  call.host = environment->host;
  if (b->library->code->call(function->function, &call, &error))
    return tfc__run_error(b, &error, status);
  return tfc__succeed(status);
}

/* ---- state: a tfc_variable each, then a byte each, then the values, each aligned to 64 bytes ---- */

int32_t tfc_variable_count(const tfc_bundle *bundle) { return bundle->variable_count; }

const tfc_tensor *tfc_variable_at(const tfc_bundle *bundle, int32_t number) {
  return number >= 0 && number < bundle->variable_count ? bundle->variables + number : NULL;
}

static size_t tfc__aligned(size_t size) { return (size + 63) / 64 * 64; }

/* Where the values begin. */
static size_t tfc__state_head(const tfc_bundle *b) {
  return tfc__aligned((size_t)b->variable_count * (sizeof(tfc_variable) + 1));
}

size_t tfc_state_bytes(const tfc_bundle *bundle) {
  size_t bytes = tfc__state_head(bundle);
  int32_t i;
  for (i = 0; i < bundle->variable_count; i++)
    bytes += tfc__aligned((size_t)tfc__variable_bytes(bundle->variables + i));
  return bytes;
}

int32_t tfc_state_init(const tfc_bundle *bundle, void *state, tfc_status *status) {
  tfc_variable *variables = (tfc_variable *)state;
  uint8_t *assigned = (uint8_t *)state + (size_t)bundle->variable_count * sizeof(tfc_variable);
  uint8_t *data = (uint8_t *)state + tfc__state_head(bundle);
  int32_t i;
  if (!state || (uintptr_t)state % 64)
    return tfc__fail(status, TFC_ERROR_ARGUMENT, "state is not aligned to 64 bytes");
  for (i = 0; i < bundle->variable_count; i++) {
    assigned[i] = 0;
    variables[i].data = data;
    variables[i].assigned = assigned + i;
    data += tfc__aligned((size_t)tfc__variable_bytes(bundle->variables + i));
  }
  return tfc__succeed(status);
}

static int32_t tfc__find_variable(const tfc_bundle *b, const char *name) {
  int32_t i;
  for (i = 0; i < b->variable_count; i++)
    if (strcmp(b->variables[i].name, name) == 0) return i;
  return -1;
}

int32_t tfc_state_set(const tfc_bundle *bundle, void *state, const char *name, const void *data,
                      tfc_status *status) {
  const tfc_variable *variables = (const tfc_variable *)state;
  const int32_t i = tfc__find_variable(bundle, name);
  if (i < 0)
    return tfc__fail(status, TFC_ERROR_ARGUMENT, "there is no variable \"%.200s\"", name);
  memcpy(variables[i].data, data, (size_t)tfc__variable_bytes(bundle->variables + i));
  *variables[i].assigned = 1;
  return tfc__succeed(status);
}

int32_t tfc_state_get(const tfc_bundle *bundle, const void *state, const char *name, void *data,
                      tfc_status *status) {
  const tfc_variable *variables = (const tfc_variable *)state;
  const int32_t i = tfc__find_variable(bundle, name);
  if (i < 0)
    return tfc__fail(status, TFC_ERROR_ARGUMENT, "there is no variable \"%.200s\"", name);
  if (!*variables[i].assigned)
    return tfc__fail(status, TFC_ERROR_UNINITIALIZED, "the variable \"%.200s\" has no value", name);
  memcpy(data, variables[i].data, (size_t)tfc__variable_bytes(bundle->variables + i));
  return tfc__succeed(status);
}

size_t tfc_element_bytes(int32_t dtype) {
  static const uint8_t bytes[] = {8, 4, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  return dtype >= 0 && dtype <= TFC_BOOL ? bytes[dtype] : 0;
}

const char *tfc_dtype_name(int32_t dtype) {
  static const char *const names[] = {"f64", "f32", "f16", "bf16", "i8",  "i16", "i32",
                                      "i64", "u8",  "u16", "u32",  "u64", "bool"};
  return dtype >= 0 && dtype <= TFC_BOOL ? names[dtype] : "";
}

#ifdef __cplusplus
}
#endif
#endif /* TFC_IMPLEMENTATION */
