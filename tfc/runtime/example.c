/* example.c: opens a bundle, fills the inputs of a function with a ramp, runs, prints.
 *
 *   cc example.c -o example                      (older libcs: -ldl -lpthread)
 *   ./example model.tfb [SIZE] [FUNCTION...]     SIZE: of every dimension that is not fixed; else 2
 *
 * Several functions, such as `init train_step train_step predict`, run one after another on one
 * state; without a name it is the main function.
 */
#define TFC_IMPLEMENTATION
#include "tfc.h"

static int64_t count_elements(const int64_t *dims, int32_t rank) {
  int64_t count = 1;
  for (int32_t i = 0; i < rank; i++) count *= dims[i];
  return count;
}

/* 0, 0.01, 0.02, ... in floating types, 0 and 1 by turns in all others. */
static void fill(void *data, int32_t dtype, int64_t count) {
  const size_t bytes = tfc_element_bytes(dtype);
  memset(data, 0, bytes * (size_t)count);
  for (int64_t i = 0; i < count; i++) {
    const float ramp = 0.01f * (float)(i % 100);
    uint32_t bits;
    memcpy(&bits, &ramp, sizeof bits);
    if (dtype == TFC_F32)
      ((float *)data)[i] = ramp;
    else if (dtype == TFC_F64)
      ((double *)data)[i] = (double)ramp;
    else if (dtype == TFC_BF16)
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    else if (dtype == TFC_F16)
      ((uint16_t *)data)[i] = 0x3c00; /* 1.0 */
    else
      ((unsigned char *)data)[(size_t)i * bytes] = (unsigned char)(i % 2); /* little-endian */
  }
}

static void print_element(const void *data, int32_t dtype, int64_t i) {
  if (dtype == TFC_F32)
    printf(" %g", (double)((const float *)data)[i]);
  else if (dtype == TFC_F64)
    printf(" %g", ((const double *)data)[i]);
  else if (dtype == TFC_I64)
    printf(" %lld", (long long)((const int64_t *)data)[i]);
  else if (dtype == TFC_I32)
    printf(" %d", (int)((const int32_t *)data)[i]);
  else
    printf(" byte %u", ((const unsigned char *)data)[(size_t)i * tfc_element_bytes(dtype)]);
}

static void print_output(const tfc_tensor *tensor, const int64_t *dims, const void *data) {
  const int64_t count = count_elements(dims, tensor->rank);
  printf("%s: %s[", tensor->name, tfc_dtype_name(tensor->dtype));
  for (int32_t i = 0; i < tensor->rank; i++) printf("%s%lld", i ? ", " : "", (long long)dims[i]);
  printf("]");
  for (int64_t i = 0; i < count && i < 8; i++) print_element(data, tensor->dtype, i);
  printf(count > 8 ? " ...\n" : "\n");
}

/* Memory for the tensors, whose sizes stand one after another in `dims`; see free_tensors. */
static void **allocate_tensors(const tfc_tensor *tensors, int32_t count, const int64_t *dims) {
  void **data = (void **)calloc((size_t)count + 1, sizeof *data);
  for (int32_t i = 0; data && i < count; i++) {
    const size_t elements = (size_t)count_elements(dims, tensors[i].rank);
    data[i] = malloc(elements * tfc_element_bytes(tensors[i].dtype) + 1);
    dims += tensors[i].rank;
    if (!data[i]) abort();
  }
  if (!data) abort();
  return data;
}

static void free_tensors(void **data, int32_t count) {
  for (int32_t i = 0; i < count; i++) free(data[i]);
  free(data);
}

static int64_t *allocate_sizes(int32_t count) {
  int64_t *sizes = (int64_t *)calloc((size_t)count + 1, sizeof *sizes);
  if (!sizes) abort();
  return sizes;
}

static int run_and_print(const tfc_signature *f, const int64_t *input_dims, const int64_t *symbols,
                         void *state, tfc_status *status) {
  const tfc_environment environment = {NULL, state, NULL};
  int64_t *output_dims = allocate_sizes(f->output_dim_count), scratch_bytes = 0;
  void *scratch = NULL;
  if (tfc_prepare(f, symbols, output_dims, &scratch_bytes, status) ||
      posix_memalign(&scratch, 64, (size_t)scratch_bytes + 64)) {
    free(output_dims);
    return status->code ? status->code : TFC_ERROR_SYSTEM;
  }
  void **inputs = allocate_tensors(f->inputs, f->input_count, input_dims);
  void **outputs = allocate_tensors(f->outputs, f->output_count, output_dims);
  const int64_t *dims = input_dims;
  for (int32_t i = 0; i < f->input_count; dims += f->inputs[i].rank, i++)
    fill(inputs[i], f->inputs[i].dtype, count_elements(dims, f->inputs[i].rank));
  tfc_run_with(f, symbols, (const void *const *)inputs, outputs, scratch, &environment,
               status);
  dims = output_dims;
  for (int32_t i = 0; i < f->output_count && !status->code; dims += f->outputs[i].rank, i++)
    print_output(f->outputs + i, dims, outputs[i]);
  free_tensors(inputs, f->input_count);
  free_tensors(outputs, f->output_count);
  free(scratch);
  free(output_dims);
  return status->code;
}

static int bind_and_run(const tfc_signature *f, int64_t size, void *state, tfc_status *status) {
  int64_t *input_dims = allocate_sizes(f->input_dim_count);
  int64_t *symbols = allocate_sizes(f->symbol_count);
  int32_t n = 0;
  for (int32_t i = 0; i < f->input_count; i++)
    for (int32_t axis = 0; axis < f->inputs[i].rank; axis++)
      input_dims[n++] = f->inputs[i].dims[axis] < 0 ? size : f->inputs[i].dims[axis];
  int code = tfc_bind(f, input_dims, symbols, status);
  if (!code) code = run_and_print(f, input_dims, symbols, state, status);
  free(input_dims);
  free(symbols);
  return code;
}

/* Memory for the variables of a bundle; NULL where it has none. */
static void *new_state(const tfc_bundle *bundle, tfc_status *status) {
  const size_t bytes = tfc_state_bytes(bundle);
  void *state = NULL;
  if (!bytes) return NULL;
  if (posix_memalign(&state, 64, bytes)) abort();
  tfc_state_init(bundle, state, status);
  return state;
}

static int run_named(const tfc_bundle *bundle, const char *name, int64_t size, void *state,
                     tfc_status *status) {
  const tfc_signature *f = tfc_find_function(bundle, name ? name : "main");
  if (!f && !name) f = tfc_function_at(bundle, 0);
  if (f) return bind_and_run(f, size, state, status);
  snprintf(status->message, sizeof status->message, "there is no function %.200s", name);
  return status->code = TFC_ERROR_ARGUMENT;
}

int main(int argc, char **argv) {
  tfc_bundle *bundle;
  tfc_status status;
  if (argc < 2) {
    fprintf(stderr, "usage: %s model.tfb [SIZE] [FUNCTION...]\n", argv[0]);
    return 2;
  }
  if (tfc_open(argv[1], NULL, &bundle, &status)) {
    fprintf(stderr, "%s\n", status.message);
    return 1;
  }
  const int64_t size = argc > 2 ? atoll(argv[2]) : 2;
  void *state = new_state(bundle, &status);
  int code = argc > 3 ? 0 : run_named(bundle, NULL, size, state, &status);
  for (int i = 3; i < argc && !code; i++) code = run_named(bundle, argv[i], size, state, &status);
  if (code) fprintf(stderr, "%s\n", status.message);
  free(state);
  tfc_close(bundle);
  return code ? 1 : 0;
}
