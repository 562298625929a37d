#include <ATen/CPUGeneratorImpl.h>

#include <cstring>

#include "stub.h"
// A CUDA device that computes on the CPU: guard, allocator, hooks and a boxed fallback for the key
// CUDA.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

int g_count = 0;
static int64_t g_limit = 150121545728LL;
static int64_t g_now[16], g_peak[16];
static std::mutex g_mem;
thread_local DeviceIndex t_device = 0;
static thread_local int64_t t_stream[16];
static std::atomic<int64_t> g_next_stream{1};

// ---- faults
void cuda_error(const char* what, const char* name, int code) {
  std::string text = std::string("CUDA error: ") + what + "\nSearch for `" + name +
                     "' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
                     "for more information.\n"
                     "CUDA kernel errors might be asynchronously reported at some other API call, "
                     "so the stacktrace below might be incorrect.\n"
                     "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
                     "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n";
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, code, text);
}
void check_faults(bool kernel) {
  static const char* file = std::getenv("CUDA_STUB_LOST_FILE");
  static const char* nokernel = std::getenv("CUDA_STUB_NO_KERNEL");
  if (kernel && nokernel)
    cuda_error("no kernel image is available for execution on the device",
               "cudaErrorNoKernelImageForDevice", 209);
  if (file && !access(file, F_OK)) {
    std::ifstream in(file);
    std::string word;
    in >> word;
    if (word == "hang")
      for (;;) pause();
    cuda_error("unspecified launch failure", "cudaErrorLaunchFailure", 719);
  }
}

// ---- memory
void account(int dev, int64_t bytes) {
  std::lock_guard<std::mutex> lock(g_mem);
  if (bytes > 0 && g_now[dev] + bytes > g_limit) {
    double gib = 1073741824.0;
    char text[600];
    snprintf(text, sizeof text,
             "CUDA out of memory. Tried to allocate %.2f GiB. GPU %d has a total capacity of %.2f "
             "GiB of which %.2f MiB is free. "
             "Including non-PyTorch memory, this process has %.2f GiB memory in use. Of the "
             "allocated memory %.2f GiB is allocated by PyTorch, and 0 bytes is reserved by "
             "PyTorch but unallocated. "
             "If reserved but unallocated memory is large try setting "
             "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
             "documentation for Memory Management  "
             "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
             bytes / gib, dev, g_limit / gib, (g_limit - g_now[dev]) / 1048576.0, g_now[dev] / gib,
             g_now[dev] / gib);
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  }
  g_now[dev] += bytes;
  g_peak[dev] = std::max(g_peak[dev], g_now[dev]);
}
struct Block {
  void* data;
  int64_t bytes;
  int dev;
};
static void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  free(block->data);
  account(block->dev, -block->bytes);
  delete block;
}
struct Alloc final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    int dev = t_device;
    if (!n) return {nullptr, nullptr, &c10::detail::deleteNothing, Device(DeviceType::CUDA, dev)};
    check_faults(false);
    int64_t bytes = (n + 511) / 512 * 512;
    account(dev, bytes);
    void* p = nullptr;
    if (posix_memalign(&p, 512, bytes)) {
      account(dev, -bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. (host)");
    }
    return {p, new Block{p, bytes, dev}, &free_block, Device(DeviceType::CUDA, dev)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* d, const void* s, size_t n) const override { default_copy_data(d, s, n); }
};
static Alloc g_alloc;
REGISTER_ALLOCATOR(DeviceType::CUDA, &g_alloc)

// pinned host memory
static std::map<uintptr_t, size_t> g_pinned;
static std::mutex g_pin;
static void free_pinned(void* p) {
  {
    std::lock_guard<std::mutex> l(g_pin);
    g_pinned.erase((uintptr_t)p);
  }
  free(p);
}
struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    if (!n) return {nullptr, nullptr, &c10::detail::deleteNothing, Device(DeviceType::CPU)};
    void* p = nullptr;
    if (posix_memalign(&p, 512, n)) throw std::bad_alloc();
    {
      std::lock_guard<std::mutex> l(g_pin);
      g_pinned[(uintptr_t)p] = n;
    }
    return {p, p, &free_pinned, Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* d, const void* s, size_t n) const override { default_copy_data(d, s, n); }
};
static Pinned g_pinned_alloc;
bool is_pinned(const void* p) {
  std::lock_guard<std::mutex> l(g_pin);
  auto it = g_pinned.upper_bound((uintptr_t)p);
  if (it == g_pinned.begin()) return false;
  --it;
  return (uintptr_t)p < it->first + it->second;
}

// ---- graphs
std::atomic<bool> g_capturing{false};
static std::shared_ptr<Entries> g_current;
static std::map<int64_t, std::shared_ptr<Entries>> g_graphs;
static std::mutex g_graph;
void forbidden_in_capture() {
  if (g_capturing)
    cuda_error("operation not permitted when stream is capturing",
               "cudaErrorStreamCaptureUnsupported", 900);
}
void record(std::function<void()> entry) {
  std::lock_guard<std::mutex> l(g_graph);
  if (g_current) g_current->push_back(std::move(entry));
}

// ---- guard
static double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device d) const override {
    Device old = getDevice();
    setDevice(d);
    return old;
  }
  Device getDevice() const override { return Device(DeviceType::CUDA, t_device); }
  void setDevice(Device d) const override {
    if (d.index() >= 0) {
      if (d.index() >= g_count) cuda_error("invalid device ordinal", "cudaErrorInvalidDevice", 101);
      t_device = d.index();
    }
  }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) t_device = d.index();
  }
  Stream getStream(Device d) const override {
    DeviceIndex i = d.index() < 0 ? t_device : d.index();
    return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, i), t_stream[i]);
  }
  Stream getDefaultStream(Device d) const override {
    DeviceIndex i = d.index() < 0 ? t_device : d.index();
    return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, i), 0);
  }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return getNewStream(d, 0); }
  Stream getNewStream(Device d, int) const override {
    DeviceIndex i = d.index() < 0 ? t_device : d.index();
    return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, i), g_next_stream++);
  }
  Stream exchangeStream(Stream s) const override {
    Stream old = getStream(s.device());
    t_stream[s.device_index()] = s.id();
    return old;
  }
  void destroyEvent(void* e, DeviceIndex) const noexcept override {
    delete static_cast<double*>(e);
  }
  void record(void** e, const Stream&, DeviceIndex, c10::EventFlag) const override {
    if (!*e) *e = new double;
    *static_cast<double*>(*e) = now_ms();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  DeviceIndex deviceCount() const noexcept override { return g_count; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {
    forbidden_in_capture();
    check_faults(false);
  }
  bool isStreamCapturing(const Stream&) const override { return g_capturing; }
  void synchronizeEvent(void*) const override { forbidden_in_capture(); }
  void synchronizeDevice(DeviceIndex) const override {
    forbidden_in_capture();
    check_faults(false);
  }
  double elapsedTime(void* a, void* b, DeviceIndex) const override {
    return *static_cast<double*>(b) - *static_cast<double*>(a);
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// ---- generators and hooks
struct Gen final : at::CPUGeneratorImpl {
  explicit Gen(int dev) : at::CPUGeneratorImpl() { device_ = Device(DeviceType::CUDA, dev); }
  void on(Device d) { device_ = d; }
};
static at::Generator& default_generator(int dev) {
  static at::Generator all[16];
  if (!all[dev].defined()) all[dev] = at::make_generator<Gen>(dev);
  return all[dev];
}
namespace at {
struct StubHooks final : CUDAHooksInterface {
  explicit StubHooks(CUDAHooksArgs) {}
  void init() const override {}
  const Generator& getDefaultGenerator(DeviceIndex i) const override {
    return default_generator(i < 0 ? t_device : i);
  }
  Generator getNewGenerator(DeviceIndex i) const override {
    return make_generator<Gen>(i < 0 ? t_device : i);
  }
  Device getDeviceFromPtr(void*) const override { return Device(DeviceType::CUDA, t_device); }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return g_count > 0; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return g_count; }
  void setCurrentDevice(DeviceIndex i) const override {
    Guard().setDevice(Device(DeviceType::CUDA, i));
  }
  DeviceIndex getCurrentDevice() const override { return t_device; }
  DeviceIndex exchangeDevice(DeviceIndex i) const override {
    DeviceIndex o = t_device;
    setCurrentDevice(i);
    return o;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex i) const override { return exchangeDevice(i); }
  DeviceIndex current_device() const override { return t_device; }
  Allocator* getPinnedMemoryAllocator() const override { return &g_pinned_alloc; }
  Allocator* getCUDADeviceAllocator() const override { return &g_alloc; }
  int getNumGPUs() const override { return g_count; }
  void deviceSynchronize(DeviceIndex) const override {
    forbidden_in_capture();
    check_faults(false);
  }
  std::string showConfig() const override { return "  - stub of CUDA 13.0\n"; }
  long versionCUDART() const override { return 13000; }
  long versionCuDNN() const override { return 91300; }
  long versionRuntimeCuDNN() const override { return 91300; }
};
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", StubHooks)
}  // namespace at

c10::Allocator* cuda_allocator() { return &g_alloc; }
void generator_on(c10::GeneratorImpl* g, c10::Device d) { static_cast<Gen*>(g)->on(d); }
// ---- for Python
thread_local std::string t_error;
extern "C" {
const char* stub_error() { return t_error.c_str(); }
void stub_setup(int count, long long limit) {
  g_count = count;
  g_limit = limit;
}
int stub_get_device() { return t_device; }
int stub_set_device(int i) { GUARDED(Guard().setDevice(Device(DeviceType::CUDA, i))) }
int stub_synchronize() { GUARDED(forbidden_in_capture(); check_faults(false)) }
int stub_check() { GUARDED(check_faults(false)) }
long long stub_allocated(int i) { return g_now[i]; }
long long stub_peak(int i) { return g_peak[i]; }
void stub_reset_peak(int i) { g_peak[i] = g_now[i]; }
long long stub_limit() { return g_limit; }
long long stub_stream(int i) { return t_stream[i]; }
void stub_set_stream(int i, long long s) { t_stream[i] = s; }
long long stub_new_stream() { return g_next_stream++; }
int stub_capturing() { return g_capturing; }
int stub_capture_begin() {
  GUARDED(check_faults(true); g_current = std::make_shared<Entries>(); g_capturing = true)
}
int stub_capture_end(long long id) {
  GUARDED(g_capturing = false; restore_saved(); g_graphs[id] = g_current; g_current.reset())
}
void stub_graph_free(long long id) { g_graphs.erase(id); }
int stub_replay(long long id) {
  GUARDED(check_faults(true); auto all = g_graphs.at(id); for (auto& each : *all) each())
}
}
