// Enough of CUDA to run a kernel on a CPU: the threads of a block are fibers that take turns, and each runs until it
// waits for the others. Blocks run one after another.
#include <cmath>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)

struct Dim {
    int x, y, z;
};
static Dim blockIdx, threadIdx, blockDim;

namespace fibers {
constexpr size_t STACK = 1 << 16;
static ucontext_t scheduler;
static ucontext_t* running;
static void (*body)(void**);
static void** given;

static void begin() { body(given); }
static void wait() { swapcontext(running, &scheduler); }

static void block(int threads) {
    static std::vector<std::vector<char>> stacks;
    while ((int)stacks.size() < threads) stacks.emplace_back(STACK);
    std::vector<ucontext_t> contexts(threads + 1);
    std::vector<bool> done(threads, false);
    static ucontext_t ended;
    for (int t = 0; t < threads; t++) {
        getcontext(&contexts[t]);
        contexts[t].uc_stack.ss_sp = stacks[t].data();
        contexts[t].uc_stack.ss_size = STACK;
        contexts[t].uc_link = &ended;
        makecontext(&contexts[t], begin, 0);
    }
    for (int left = threads; left > 0;) {
        for (int t = 0; t < threads; t++) {
            if (done[t]) continue;
            threadIdx = {t, 0, 0};
            running = &contexts[t];
            volatile bool back = false;  // the second time that control comes by here, the fiber has ended
            getcontext(&ended);
            if (back) {
                done[t] = true;
                left--;
                continue;
            }
            back = true;
            swapcontext(&scheduler, running);
        }
    }
}
}  // namespace fibers

#define __syncthreads() fibers::wait()

template <auto Kernel, class... Given, size_t... I>
static void unpacked(void** given, void (*)(Given...), std::index_sequence<I...>) {
    Kernel(*static_cast<std::remove_reference_t<Given>*>(given[I])...);
}

// Runs a kernel over a grid, as cuLaunchKernel does: `given` holds the addresses of its arguments.
template <auto Kernel, class... Given>
static void launch(void (*kernel)(Given...), int across, int down, int threads, void** given) {
    fibers::body = [](void** given) {
        unpacked<Kernel>(given, static_cast<void (*)(Given...)>(nullptr), std::index_sequence_for<Given...>());
    };
    fibers::given = given;
    blockDim = {threads, 1, 1};
    for (int y = 0; y < down; y++)
        for (int x = 0; x < across; x++) {
            blockIdx = {x, y, 0};
            fibers::block(threads);
        }
}

#define LAUNCHES(name) \
    extern "C" void launch_##name(int across, int down, int threads, void** given) { \
        launch<name>(name, across, down, threads, given); \
    }
