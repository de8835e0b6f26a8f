/* An allocator that fails once, when it is told to: LD_PRELOAD it. Only the thread that asked for it is meant.
 *
 * torch ends the process if one of its own allocations fails while it makes a tensor. After `spare_torch` they do not
 * fail, and are not counted; nor are those of C++'s `new`, through which torch makes most.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
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

static int spares_torch = 0;

void spare_torch(void) { spares_torch = 1; }

static int is_of_torch(void *caller) {
    Dl_info library;
    if (!spares_torch || !dladdr(caller, &library)) return 0;
    return strstr(library.dli_fname, "torch") || strstr(library.dli_fname, "libc10") || strstr(library.dli_fname, "libstdc++");
}

static int fails(void *caller) {
    if (left < 0 || is_of_torch(caller)) return 0;
    if (left--) return 0;
    errno = ENOMEM;
    return 1;  /* and `left` is -1: it fails once */
}

#define FAILS fails(__builtin_return_address(0))

void *malloc(size_t n) { return FAILS ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return FAILS ? NULL : __libc_calloc(n, size); }
void *realloc(void *old, size_t n) { return FAILS ? NULL : __libc_realloc(old, n); }

void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    if (FAILS) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
}
