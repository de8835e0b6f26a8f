/* A disk that fails once, when it is told to: LD_PRELOAD it. Only the thread that asked for it is meant.
 *
 * Calls that change a disk are counted: open to write, write, fsync, rename, mkdir. The one with a number fails with
 * ENOSPC. A write may also be short before that: it writes half, and the next one fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static __thread long left __attribute__((tls_model("initial-exec"))) = -1; /* calls before the one that fails */
static __thread int halves __attribute__((tls_model("initial-exec"))) = 0;

/* Have the call fail that comes after `n` others in this thread; -1 for none. Returns how many were left. */
long fail_disk(long n, int half) {
    long before = left;
    left = n;
    halves = half;
    return before;
}

static int fails(void) {
    if (left < 0 || left--) return 0;
    errno = ENOSPC;
    return 1; /* and `left` is -1: it fails once */
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t n) {
    struct stat about;
    if (left >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode)) {
        if (left == 0 && halves && n > 1) {
            halves = 0;
            return REAL(write)(file, bytes, n / 2);
        }
        if (fails()) return -1;
    }
    return REAL(write)(file, bytes, n);
}

static int open_any(const char *path, int flags, mode_t mode) {
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && fails()) return -1;
    return REAL(open)(path, flags, mode);
}

#define WITH_MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { WITH_MODE(flags) return open_any(path, flags, mode); }
int open64(const char *path, int flags, ...) { WITH_MODE(flags) return open_any(path, flags | O_LARGEFILE, mode); }
int fsync(int file) { return fails() ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fails() ? -1 : REAL(fdatasync)(file); }
int rename(const char *from, const char *to) { return fails() ? -1 : REAL(rename)(from, to); }
int mkdir(const char *path, mode_t mode) { return fails() ? -1 : REAL(mkdir)(path, mode); }
