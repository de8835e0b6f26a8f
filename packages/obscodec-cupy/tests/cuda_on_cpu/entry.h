// The entry of a kernel that g++ compiled: its parameters, and a launch.
namespace cuda {

// A letter for the type of each parameter, as numpy has it: an address is u8.
template <typename T>
static const char* type_name() {
    if (std::is_pointer<T>::value) return "u8";
    static const char* const names[3][4] = {{"i1", "i2", "i4", "i8"}, {"u1", "u2", "u4", "u8"}, {"f1", "f2", "f4", "f8"}};
    const int kind = std::is_floating_point<T>::value ? 2 : std::is_unsigned<T>::value ? 1 : 0;
    return names[kind][sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
}

template <typename... T>
static void describe(void (*)(T...), char* out) {
    *out = 0;
    (strcat(strcat(out, type_name<T>()), " "), ...);
}

template <typename... T, size_t... I>
static void call(void (*what)(T...), void** arguments, std::index_sequence<I...>) {
    what(*static_cast<T*>(arguments[I])...);
}

template <typename... T>
static void call(void (*what)(T...), void** arguments) {
    call(what, arguments, std::index_sequence_for<T...>());
}

}  // namespace cuda

extern "C" __attribute__((visibility("default"))) void cuda_parameters(char* out) { cuda::describe(CUDA_KERNEL, out); }

extern "C" __attribute__((visibility("default"))) const char* cuda_launch(void** arguments, unsigned n_blocks, unsigned n_threads,
                                                                         uint64_t seed) {
    return cuda::run([](void** given) { cuda::call(CUDA_KERNEL, given); }, arguments, n_blocks, n_threads, seed);
}
