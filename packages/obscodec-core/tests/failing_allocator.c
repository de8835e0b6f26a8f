/* An allocator that fails once, when it is told to: LD_PRELOAD it. Only the thread that asked for it is meant. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static __thread long left __attribute__((tls_model("initial-exec"))) = -1;  /* allocations before the one that fails */

/* Have the allocation fail that comes after `n` others in this thread; -1 for none. Returns how many were left. */
long fail_allocation(long n) {
    long before = left;
    left = n;
    return before;
}

static int fails(void) {
    if (left < 0) return 0;
    if (left--) return 0;
    errno = ENOMEM;
    return 1;  /* and `left` is -1: it fails once */
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *old, size_t n) { return fails() ? NULL : __libc_realloc(old, n); }

void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    if (fails()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
}
