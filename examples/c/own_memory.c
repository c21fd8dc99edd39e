/* own_memory.c: a program that owns all memory and all threads that a bundle uses.
 *
 *   unzip -j model.tfb include/tfc.h
 *   cc own_memory.c -o own_memory        (older libcs: -ldl -lpthread)
 *   ./own_memory model.tfb
 *
 * The bundle is opened from a buffer, as if it were part of the program or came over a network.
 * Sizes that are not fixed are set to 4; inputs are zeros. One arena holds inputs, outputs and
 * scratch, and the loops of the model run on this program's executor, which here is a plain loop.
 * While it runs nothing is allocated.
 */
#define TFC_IMPLEMENTATION
#include "tfc.h"

enum { SIZE = 4, MAXIMUM_TENSORS = 64, MAXIMUM_DIMS = 256 };

/* An executor: calls fn for each index, in any order. A program with threads of its own hands them
 * out here; `self` is whatever it needs for that. */
static void run_in_order(void *self, int64_t n, void (*fn)(void *arg, int64_t index), void *arg) {
  int64_t *loops = (int64_t *)self;
  ++*loops;
  for (int64_t i = 0; i < n; i++) fn(arg, i);
}

static unsigned char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  unsigned char *data = NULL;
  if (!file) return NULL;
  if (!fseek(file, 0, SEEK_END)) {
    *size = (size_t)ftell(file);
    data = (unsigned char *)malloc(*size + 1);
    rewind(file);
    if (data && fread(data, 1, *size, file) != *size) *size = 0;
  }
  fclose(file);
  return data;
}

/* Bytes of a tensor with these sizes, rounded up so that the next one is aligned too. */
static size_t tensor_bytes(const tfc_tensor *tensor, const int64_t *dims) {
  size_t bytes = tfc_element_bytes(tensor->dtype);
  for (int32_t axis = 0; axis < tensor->rank; axis++) bytes *= (size_t)dims[axis];
  return (bytes + 63) / 64 * 64;
}

/* Places the tensors one after another from `offset` on and returns where they end. With an arena
 * their addresses go to `data`; without one this only measures. */
static size_t place(const tfc_tensor *tensors, int32_t count, const int64_t *dims, size_t offset,
                    unsigned char *arena, void **data) {
  for (int32_t i = 0; i < count; i++) {
    if (arena) data[i] = arena + offset;
    offset += tensor_bytes(tensors + i, dims);
    dims += tensors[i].rank;
  }
  return offset;
}

static int run(const tfc_signature *f, tfc_status *status) {
  int64_t input_dims[MAXIMUM_DIMS], output_dims[MAXIMUM_DIMS], symbols[MAXIMUM_DIMS];
  int64_t scratch_bytes, loops = 0;
  void *inputs[MAXIMUM_TENSORS], *outputs[MAXIMUM_TENSORS], *arena = NULL;
  int32_t n = 0;
  if (f->input_count > MAXIMUM_TENSORS || f->output_count > MAXIMUM_TENSORS ||
      f->input_dim_count > MAXIMUM_DIMS || f->output_dim_count > MAXIMUM_DIMS ||
      f->symbol_count > MAXIMUM_DIMS) {
    fprintf(stderr, "this model has more inputs or outputs than this example holds\n");
    return 1;
  }
  for (int32_t i = 0; i < f->input_count; i++)
    for (int32_t axis = 0; axis < f->inputs[i].rank; axis++)
      input_dims[n++] = f->inputs[i].dims[axis] < 0 ? (int64_t)SIZE : f->inputs[i].dims[axis];
  if (tfc_bind(f, input_dims, symbols, status)) return status->code;
  if (tfc_prepare(f, symbols, output_dims, &scratch_bytes, status)) return status->code;

  const size_t inputs_end = place(f->inputs, f->input_count, input_dims, 0, NULL, NULL);
  const size_t outputs_end =
      place(f->outputs, f->output_count, output_dims, inputs_end, NULL, NULL);
  const size_t whole = outputs_end + (size_t)scratch_bytes;
  if (posix_memalign(&arena, 64, whole + 64)) return TFC_ERROR_SYSTEM;
  memset(arena, 0, inputs_end);
  place(f->inputs, f->input_count, input_dims, 0, (unsigned char *)arena, inputs);
  place(f->outputs, f->output_count, output_dims, inputs_end, (unsigned char *)arena, outputs);

  const tfc_executor executor = {&loops, 1, 0, run_in_order, NULL, NULL};
  tfc_run(f, symbols, (const void *const *)inputs, outputs, (unsigned char *)arena + outputs_end,
          &executor, status);
  if (!status->code)
    printf("%s ran in an arena of %zu bytes, with %lld loops\n", f->name, whole,
           (long long)loops);
  free(arena);
  return status->code;
}

int main(int argc, char **argv) {
  size_t size = 0;
  unsigned char *data = argc == 2 ? read_file(argv[1], &size) : NULL;
  tfc_bundle *bundle = NULL;
  tfc_status status;
  if (!data) {
    fprintf(stderr, "usage: %s model.tfb\n", argv[0]);
    return 2;
  }
  int failed = tfc_open_memory(data, size, NULL, &bundle, &status);
  if (!failed) failed = run(tfc_function_at(bundle, 0), &status);
  if (failed) fprintf(stderr, "%s\n", status.message);
  tfc_close(bundle); /* before its bytes go */
  free(data);
  return failed ? 1 : 0;
}
