// Every access of a kernel to memory: whether it may touch that at all, and whether a barrier, or __syncwarp within a
// warp, is between it and the accesses of other threads to the same bytes. g++ calls this, see -fsanitize=thread.
#include "cuda.h"
#include "runtime.h"

#include <link.h>

extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace cuda {

enum Kind { READ, WRITE, ATOMIC };

// Marks in Access.thread, besides the number of a thread.
static const uint16_t BY_ATOMIC = 0x8000;  // and the thread
static const uint16_t OF_WARP = 0x4000;    // and the number of a warp: several threads of it
static const uint16_t SEVERAL = 0x2000;    // several threads
static const uint16_t BLOCKS = 0x1000;     // several thread blocks
static const size_t STATIC_NBYTES = 64 << 10;
static const uint64_t NEAR = 1 << 20;  // bytes behind memory that an index too large is likely to reach

static Shadow dynamic_shadow[DYNAMIC_NBYTES], static_shadow[STATIC_NBYTES];
static Memory* memory;
static uint32_t launch_phase, block_phase, phase;
static const Region* last_region;
static uint64_t image_begin, image_end;

// A write to bytes that another thread has written in the same phase: it may only write what is there already.
static struct {
    const unsigned char* at;
    unsigned nbytes;
    Access by;
    unsigned char before[64];
    const void* where;
} repeated;

static int find_image(dl_phdr_info* info, size_t, void*) {
    uint64_t begin = ~0ull, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        const uint64_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (at < begin) begin = at;
        if (at + info->dlpi_phdr[i].p_memsz > end) end = at + info->dlpi_phdr[i].p_memsz;
    }
    const uint64_t own = reinterpret_cast<uint64_t>(&memory);
    if (!(begin <= own && own < end)) return 0;
    image_begin = begin, image_end = end;
    return 1;
}

void next_phase() { phase = ++*memory->phase; }

void begin_launch(Memory* of_device) {
    memory = of_device;
    last_region = nullptr;
    repeated.nbytes = 0;
    if (!image_end) dl_iterate_phdr(find_image, nullptr);
    next_phase();
    launch_phase = phase;
}

void begin_block() {
    next_phase();
    block_phase = phase;
}

// The end of an error's text: the place in the code, for build.py to turn into a file and a line.
#define AT(where) static_cast<unsigned long long>(reinterpret_cast<uint64_t>(where) - image_begin)

static bool is_ordered(const Access& a, bool in_shared) {
    if (a.phase < launch_phase) return true;
    if (a.thread & BLOCKS) return false;
    if (a.phase < block_phase) return in_shared;
    if (a.phase < phase) return true;
    if (a.thread & SEVERAL) return false;
    const unsigned number = a.thread & 0xfff, warp = a.thread & OF_WARP ? number : number / 32;
    if (warp == current / 32 && a.warp_syncs < warp_syncs[warp]) return true;
    return !(a.thread & OF_WARP) && number == current;
}

static uint16_t readers(const Access& before) {
    const uint16_t warp = current / 32, other = before.thread & OF_WARP ? before.thread & 0xfff : before.thread / 32;
    return !(before.thread & SEVERAL) && warp == other ? OF_WARP | warp : SEVERAL;
}

static void note_read(Access& read, bool in_shared) {
    const Access own = {phase, static_cast<uint16_t>(current), warp_syncs[current / 32]};
    if (read.phase >= launch_phase && read.thread & BLOCKS) return;
    if (read.phase >= launch_phase && read.phase < block_phase && !in_shared)
        read = {phase, BLOCKS, 0};
    else if (is_ordered(read, in_shared))
        read = own;
    else
        read = {phase, readers(read), own.warp_syncs};
}

[[noreturn]] static void fail_race(Kind kind, const Access& other, const char* did, const void* where) {
    static const char* const names[] = {"reads", "writes", "changes"};
    if (other.phase < block_phase || other.thread & BLOCKS)
        FAIL("race: thread %u %s what another thread block has %s @%llx", current, names[kind], did, AT(where));
    if (other.thread & (OF_WARP | SEVERAL))
        FAIL("race: thread %u %s what several threads have %s since the last barrier @%llx", current, names[kind], did,
             AT(where));
    FAIL("race: thread %u %s what thread %u has %s since the last barrier @%llx", current, names[kind], other.thread & 0xfff, did,
         AT(where));
}

void settle() {
    if (!repeated.nbytes) return;
    const unsigned nbytes = repeated.nbytes;
    repeated.nbytes = 0;
    if (memcmp(repeated.at, repeated.before, nbytes)) fail_race(WRITE, repeated.by, "written", repeated.where);
}

static void note(Kind kind, uint64_t address, unsigned nbytes, Shadow* shadow, bool in_shared, const void* where) {
    const Access own = {phase, static_cast<uint16_t>(current | (kind == ATOMIC ? BY_ATOMIC : 0)), warp_syncs[current / 32]};
    for (unsigned i = 0; i < nbytes; i++) {
        Shadow& byte = shadow[i];
        if (!is_ordered(byte.write, in_shared)) {
            const bool by_atomic = byte.write.thread & BY_ATOMIC;
            if (kind == WRITE && !by_atomic && nbytes <= sizeof repeated.before) {
                repeated.at = reinterpret_cast<const unsigned char*>(address);
                repeated.nbytes = nbytes, repeated.by = byte.write, repeated.where = where;
                memcpy(repeated.before, repeated.at, nbytes);
            } else if (kind != ATOMIC || !by_atomic) {
                fail_race(kind, byte.write, by_atomic ? "changed" : "written", where);
            }
        }
        if (kind == READ) {
            note_read(byte.read, in_shared);
            continue;
        }
        if (!is_ordered(byte.read, in_shared)) fail_race(kind, byte.read, "read", where);
        byte.write = own;
    }
}

static const Region* region_of(uint64_t address) {
    if (last_region && last_region->begin <= address && address < last_region->end) return last_region;
    uint64_t low = 0, high = memory->n_regions;  // the last region that begins at the address or before it
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (memory->regions[middle].begin <= address) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return nullptr;
    last_region = memory->regions + low - 1;
    return last_region;
}

static void touch(Kind kind, const void* at, unsigned nbytes, const void* where) {
    const uint64_t address = reinterpret_cast<uint64_t>(at), stack = reinterpret_cast<uint64_t>(fibers[current].stack);
    if (address - stack < STACK_NBYTES) return;
    if (kind != READ) settle();  // to copy, g++ tells of the write, then of the read, and then does both
    const unsigned unit = nbytes & -nbytes;  // the alignment that is asked for
    if (address % (unit < 16 ? unit : 16)) FAIL("an access of %u bytes is not aligned: %p @%llx", nbytes, at, AT(where));
    const uint64_t of_static = reinterpret_cast<uint64_t>(__start_cuda_shared), of_dynamic = reinterpret_cast<uint64_t>(dynamic);
    if (address - of_static < static_cast<uint64_t>(__stop_cuda_shared - __start_cuda_shared))
        return note(kind, address, nbytes, static_shadow + (address - of_static), true, where);
    if (address - of_dynamic < DYNAMIC_NBYTES) {
        if (address + nbytes > of_dynamic + dynamic_nbytes)
            FAIL("byte %llu of %u bytes of dynamic shared memory @%llx",
                 static_cast<unsigned long long>(address - of_dynamic), dynamic_nbytes, AT(where));
        return note(kind, address, nbytes, dynamic_shadow + (address - of_dynamic), true, where);
    }
    if (kind == READ && image_begin <= address && address < image_end) return;  // a constant
    const Region* region = region_of(address);
    if (!region || address > region->end + NEAR) FAIL("no memory of the device is at %p @%llx", at, AT(where));
    if (address + nbytes > region->end)
        FAIL("byte %llu of %llu bytes of device memory @%llx", static_cast<unsigned long long>(address - region->begin),
             static_cast<unsigned long long>(region->end - region->begin), AT(where));
    if (region->shadow) note(kind, address, nbytes, region->shadow + (address - region->begin), false, where);
}

void atomic_access(const volatile void* at, unsigned nbytes, const void* where) {
    touch(ATOMIC, const_cast<const void*>(at), nbytes, where);
}

}  // namespace cuda

// What g++ calls.
#define ACCESS(name, kind, n) \
    void __tsan_##name##n(void* at) { cuda::touch(cuda::kind, at, n, __builtin_return_address(0)); }
#define ACCESSES(name, kind) ACCESS(name, kind, 1) ACCESS(name, kind, 2) ACCESS(name, kind, 4) ACCESS(name, kind, 8) ACCESS(name, kind, 16)

extern "C" {
ACCESSES(read, READ)
ACCESSES(write, WRITE)
ACCESSES(unaligned_read, READ)
ACCESSES(unaligned_write, WRITE)
void __tsan_read_range(void* at, unsigned long nbytes) {
    cuda::touch(cuda::READ, at, static_cast<unsigned>(nbytes), __builtin_return_address(0));
}
void __tsan_write_range(void* at, unsigned long nbytes) {
    cuda::touch(cuda::WRITE, at, static_cast<unsigned>(nbytes), __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
