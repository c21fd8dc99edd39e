/* freestanding.c: runs one of the linked kernels on what its input holds, without a libc.
 *
 * Input: the kernel's number, buffers n, symbols s, grain, all programs, scratch bytes a task; the
 * bytes of each buffer; the symbols; then the buffers, each padded to 64 bytes. Output: the buffers.
 */
typedef unsigned long size;
typedef long word;

extern void (*const kernels[])(void *arguments, word task);

void *memcpy(void *to, const void *from, size n) {
  for (size i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}
void *memmove(void *to, const void *from, size n) {
  if ((size)to < (size)from) return memcpy(to, from, n);
  while (n--) ((char *)to)[n] = ((const char *)from)[n];
  return to;
}
void *memset(void *to, int value, size n) {
  for (size i = 0; i < n; i++) ((char *)to)[i] = (char)value;
  return to;
}

static word call(word number, word a, word b, word c) {
  register word x8 __asm__("x8") = number;
  register word x0 __asm__("x0") = a;
  register word x1 __asm__("x1") = b;
  register word x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}

static char input[64 << 20] __attribute__((aligned(64)));
static char scratch[32 << 20] __attribute__((aligned(64)));
static word error[8];
static word slots[256];

void start(void) {
  word length = 0, got;
  while ((got = call(63, 0, (word)(input + length), (word)sizeof input - length)) > 0) length += got;
  word *head = (word *)input;
  word n = head[1], s = head[2], grain = head[3], total = head[4];
  word *sizes = head + 6, *symbols = sizes + n, *slot = slots;
  word first = ((6 + n + s) * 8 + 63) / 64 * 64, at = first;
  for (word i = 0; i < n; i++) {
    *slot++ = (word)(input + at);
    at += (sizes[i] + 63) / 64 * 64;
  }
  for (word i = 0; i < s; i++) *slot++ = symbols[i];
  *slot++ = (word)error;
  *slot++ = grain;
  *slot++ = total;
  *slot++ = (word)scratch;
  for (word task = 0; task * grain < total; task++) kernels[head[0]](slots, task);
  for (word done = first; done < at; done += got)
    if ((got = call(64, 1, (word)(input + done), at - done)) <= 0) break;
  call(94, 0, 0, 0);
}

__attribute__((naked, noreturn)) void _start(void) { __asm__("bl start"); }
