// A CUDA device that computes on the CPU, for the CPU build of torch; see torch_cuda.py.
//
// device.cpp: memory, guard, streams, events, captures, generators, and the functions for Python.
// kernels.cpp: the operators.  Each runs that of the CPU on the same memory; a captured graph keeps
// its operators and repeats them.  timer.cpp: what DistributedDataParallel takes the time with.
//
// CUDA_STUB_LOST_FILE  once this file exists, work fails, or hangs if its text is "hang"
// CUDA_STUB_NO_KERNEL  work fails as where torch has no kernels for the GPU
#pragma once
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
using Entries = std::vector<std::function<void()>>;
extern int g_count;
extern thread_local c10::DeviceIndex t_device;
extern std::atomic<bool> g_capturing;
void cuda_error(const char*, const char*, int);
void check_faults(bool);
void account(int, int64_t);
bool is_pinned(const void*);
void forbidden_in_capture();
void record(std::function<void()>);
namespace c10 {
struct Allocator;
struct GeneratorImpl;
}  // namespace c10
c10::Allocator* cuda_allocator();
void generator_on(c10::GeneratorImpl*, c10::Device);
extern thread_local std::string t_error;  // of the latest function that failed
// The body of a function for Python: 0, or 1 and what failed.
#define GUARDED(body)                 \
  try {                               \
    t_error.clear();                  \
    body;                             \
    return 0;                         \
  } catch (const std::exception& e) { \
    t_error = e.what();               \
    return 1;                         \
  }

void restore_saved();
