// The entry of a kernel that g++ compiled: its parameters, and a launch. The macro CUDA_KERNEL names the kernel.
#define ENTRY __attribute__((no_sanitize("thread")))  // its own accesses are not those of a kernel
#define EXPORTED extern "C" __attribute__((visibility("default"))) ENTRY

namespace cuda {

struct Memory;
const char* run(void (*what)(void**), void** arguments, unsigned blocks, unsigned threads, unsigned shared_nbytes, uint64_t seed,
                Memory* memory, char* stacks);

// The name that numpy has for the type of a parameter; an address is u8.
template <typename T>
ENTRY static const char* type_name() {
    if (std::is_pointer<T>::value) return "u8";
    static const char* const names[3][4] = {{"i1", "i2", "i4", "i8"}, {"u1", "u2", "u4", "u8"}, {"f1", "f2", "f4", "f8"}};
    const int kind = std::is_floating_point<T>::value ? 2 : std::is_unsigned<T>::value ? 1 : 0;
    return names[kind][sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
}

template <typename... T>
ENTRY static void describe(void (*)(T...), char* out) {
    *out = 0;
    (strcat(strcat(out, type_name<T>()), " "), ...);
}

template <typename... T, size_t... I>
ENTRY static void call(void (*what)(T...), void** arguments, std::index_sequence<I...>) {
    what(*static_cast<T*>(arguments[I])...);
}

template <typename... T>
ENTRY static void call(void (*what)(T...), void** arguments) {
    call(what, arguments, std::index_sequence_for<T...>());
}

ENTRY static void call_kernel(void** arguments) { call(CUDA_KERNEL, arguments); }

}  // namespace cuda

EXPORTED void cuda_parameters(char* out) { cuda::describe(CUDA_KERNEL, out); }

EXPORTED const char* cuda_launch(void** arguments, unsigned n_blocks, unsigned n_threads, unsigned shared_nbytes, uint64_t seed,
                                 cuda::Memory* memory, char* stacks) {
    return cuda::run(cuda::call_kernel, arguments, n_blocks, n_threads, shared_nbytes, seed, memory, stacks);
}
