#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cstring>
#include <set>

#include "stub.h"
using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::IValue;
struct Kept {
  c10::Storage storage;
  int64_t bytes;
  int dev;
};
static void free_kept(void* context) {
  auto* kept = static_cast<Kept*>(context);
  account(kept->dev, -kept->bytes);
  delete kept;
}

static bool on_cuda(const Tensor& t) {
  return t.defined() && t.device().type() == DeviceType::CUDA;
}
static Tensor with(c10::Storage storage, c10::DispatchKey key, const Tensor& like) {
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                    like.storage_offset());
  return made;
}
static Tensor to_cpu_alias(const Tensor& t) {
  auto& old = t.storage();
  void* data = old.mutable_data_ptr().get();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), old.nbytes(),
      c10::DataPtr(data, Device(DeviceType::CPU)), c10::GetCPUAllocator(), true));
  Tensor made = with(std::move(storage), c10::DispatchKey::CPU, t);
  if (t.unsafeGetTensorImpl()->is_wrapped_number())
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}
struct Arg {
  Tensor orig, alias;
  bool write;
  void* base;
};
static Tensor scratch_alias(const Tensor& t) {  // a copy: what is captured does not run
  Tensor alias = to_cpu_alias(t);
  size_t n = alias.storage().nbytes();
  auto data = c10::GetCPUAllocator()->allocate(n);
  if (n && alias.storage().mutable_data_ptr().get())
    memcpy(data.get(), alias.storage().mutable_data_ptr().get(), n);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), n, std::move(data), c10::GetCPUAllocator(), true));
  return with(std::move(storage), c10::DispatchKey::CPU, t);
}
static Tensor to_cuda(const Tensor& cpu, int dev, const std::vector<Arg>& args) {
  if (!cpu.defined() || on_cuda(cpu)) return cpu;
  void* base = cpu.storage().mutable_data_ptr().get();
  if (base)
    for (auto& arg : args)
      if (arg.base == base) {
        if (arg.alias.unsafeGetTensorImpl() == cpu.unsafeGetTensorImpl()) return arg.orig;
        {
          Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW,
                                                                 c10::Storage(arg.orig.storage()),
                                                                 arg.orig.key_set(), cpu.dtype());
          made.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(),
                                                            cpu.storage_offset());
          return made;
        }
      }
  for (auto& arg : args)
    if (arg.alias.unsafeGetTensorImpl() == cpu.unsafeGetTensorImpl()) return arg.orig;
  int64_t bytes = (cpu.storage().nbytes() + 511) / 512 * 512;
  account(dev, bytes);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), cpu.storage().nbytes(),
      c10::DataPtr(base, new Kept{cpu.storage(), bytes, dev}, &free_kept,
                   Device(DeviceType::CUDA, dev)),
      cuda_allocator(), true));
  return with(std::move(storage), c10::DispatchKey::CUDA, cpu);
}

static const std::set<std::string> mixed_allowed = {"aten::index",
                                                    "aten::index_put_",
                                                    "aten::_index_put_impl_",
                                                    "aten::copy_",
                                                    "aten::set_",
                                                    "aten::_unsafe_index",
                                                    "aten::index_put",
                                                    "aten::_to_copy",
                                                    "aten::_copy_from",
                                                    "aten::lift_fresh",
                                                    "aten::_foreach_copy_",
                                                    "aten::record_stream",
                                                    "aten::_unsafe_masked_index"};
static const std::set<std::string> waits = {
    "aten::_local_scalar_dense", "aten::nonzero",  "aten::equal",
    "aten::masked_select",       "aten::_unique2", "aten::is_nonzero",
    "aten::unique_dim"};

static std::vector<IValue> run(const c10::OperatorHandle& op, const std::vector<IValue>& given,
                               bool scratch = false) {
  const auto& schema = op.schema();
  std::vector<Arg> args;
  int dev = -1;
  auto note = [&](const Tensor& t) {
    if (on_cuda(t) && dev < 0) dev = t.device().index();
  };
  for (auto& value : given) {
    if (value.isTensor())
      note(value.toTensor());
    else if (value.isTensorList())
      for (const Tensor& t : value.toTensorVector()) note(t);
    else if (value.isOptionalTensorList())
      for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) {
        if (t) note(*t);
      }
    else if (value.isDevice() && dev < 0 && value.toDevice().type() == DeviceType::CUDA)
      dev = value.toDevice().index();
  }
  if (dev < 0) dev = t_device;
  const bool lax = mixed_allowed.count(schema.name());
  std::set<c10::TensorImpl*> written;
  for (size_t i = 0; i < given.size(); i++) {
    const auto* info = schema.arguments()[i].alias_info();
    if (!info || !info->isWrite()) continue;
    if (given[i].isTensor())
      written.insert(given[i].toTensor().unsafeGetTensorImpl());
    else if (given[i].isTensorList())
      for (const Tensor& t : given[i].toTensorVector()) written.insert(t.unsafeGetTensorImpl());
  }
  auto alias = [&](const Tensor& t, bool write) -> Tensor {
    if (!t.defined()) return t;
    if (!on_cuda(t)) {
      if (t.device().type() == DeviceType::CPU && t.dim() > 0 && !lax)
        TORCH_CHECK(
            false,
            "Expected all tensors to be on the same device, but found at least two devices, cuda:",
            dev, " and cpu! (when checking argument for ", schema.name(), ")");
      return t;
    }
    if (t.device().index() != dev && !lax)
      TORCH_CHECK(
          false,
          "Expected all tensors to be on the same device, but found at least two devices, cuda:",
          dev, " and cuda:", (int)t.device().index(), "! (", schema.name(), ")");
    for (auto& a : args)
      if (a.orig.unsafeGetTensorImpl() == t.unsafeGetTensorImpl()) {
        a.write |= write;
        return a.alias;
      }
    write |= written.count(t.unsafeGetTensorImpl()) > 0;
    Tensor made = scratch && write ? scratch_alias(t) : to_cpu_alias(t);
    args.push_back({t, made, write, made.storage().mutable_data_ptr().get()});
    return args.back().alias;
  };
  std::vector<c10::GeneratorImpl*> generators;
  torch::jit::Stack stack;
  for (size_t i = 0; i < given.size(); i++) {
    const IValue& value = given[i];
    const auto* info = schema.arguments()[i].alias_info();
    bool write = info && info->isWrite();
    if (value.isTensor())
      stack.emplace_back(alias(value.toTensor(), write));
    else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(alias(t, write));
      stack.emplace_back(std::move(list));
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& t : value.toOptionalTensorVector())
        list.push_back(t ? std::optional<Tensor>(alias(*t, write)) : t);
      stack.emplace_back(std::move(list));
    } else if (value.isList() && !value.toList().empty() && value.toList().get(0).isTensorList()) {
      c10::List<c10::List<Tensor>> outer;
      for (const IValue& each : value.toList()) {
        c10::List<Tensor> list;
        for (const Tensor& t : each.toTensorVector()) list.push_back(alias(t, write));
        outer.push_back(list);
      }
      stack.emplace_back(std::move(outer));
    } else if (value.isDevice())
      stack.emplace_back(Device(DeviceType::CPU));
    else if (value.isGenerator() && value.toGenerator().device().type() == DeviceType::CUDA) {
      auto* g = value.toGenerator().unsafeGetGeneratorImpl();
      generator_on(g, Device(DeviceType::CPU));
      generators.push_back(g);
      stack.emplace_back(value);
    } else
      stack.emplace_back(value);
  }
  struct Back {
    std::vector<c10::GeneratorImpl*>& all;
    int dev;
    ~Back() {
      for (auto* g : all) generator_on(g, Device(DeviceType::CUDA, dev));
    }
  } back{generators, dev};
  // half_to_float is CUDA's own
  const std::string& name = schema.name();
  if ((name == "aten::_softmax" || name == "aten::_log_softmax") && stack[2].toBool()) {
    stack[0] = stack[0].toTensor().to(at::kFloat);
    stack[2] = false;
  }
  Tensor narrow;
  if (name == "aten::_softmax_backward_data" || name == "aten::_log_softmax_backward_data") {
    auto wanted = stack[3].toScalarType();
    auto has = stack[0].toTensor().scalar_type();
    if (wanted != has) {
      stack[3] = (int64_t)has;
      if (stack.size() > 4) {
        narrow = stack[4].toTensor();
        stack[4] = at::empty(narrow.sizes(), narrow.options().dtype(has));
      }
    }
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard autocast(c10::autocast_dispatch_keyset);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    if (narrow.defined()) {
      narrow.copy_(stack[0].toTensor());
      stack[0] = narrow;
    }
  }
  for (auto& arg : args) {
    if (!arg.write) continue;
    void* data = arg.alias.storage().mutable_data_ptr().get();
    if (data != arg.base) {
      Tensor moved = to_cuda(arg.alias.alias(), dev, {});
      arg.orig.unsafeGetTensorImpl()->set_storage_keep_dtype(moved.storage());
    }
    if (arg.alias.sizes() != arg.orig.sizes() || arg.alias.strides() != arg.orig.strides())
      arg.orig.unsafeGetTensorImpl()->set_sizes_and_strides(arg.alias.sizes(), arg.alias.strides(),
                                                            arg.alias.storage_offset());
  }
  std::vector<IValue> out;
  for (auto& value : stack) {
    if (value.isTensor())
      out.emplace_back(to_cuda(value.toTensor(), dev, args));
    else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(to_cuda(t, dev, args));
      out.emplace_back(std::move(list));
    } else if (value.isList() && !value.toList().empty() && value.toList().get(0).isTensorList()) {
      c10::List<c10::List<Tensor>> outer;
      for (const IValue& each : value.toList()) {
        c10::List<Tensor> list;
        for (const Tensor& t : each.toTensorVector()) list.push_back(to_cuda(t, dev, args));
        outer.push_back(list);
      }
      out.emplace_back(std::move(outer));
    } else
      out.push_back(value);
  }
  return out;
}
static void copy_over(const Tensor& to, const Tensor& from) {
  if (!to.defined() || !from.defined() ||
      to.storage().mutable_data_ptr().get() == from.storage().mutable_data_ptr().get())
    return;
  at::AutoDispatchBelowADInplaceOrView below;
  to_cpu_alias(to).copy_(to_cpu_alias(from));
}

// What a capture overwrites is restored at its end, since what is captured does not run.
#include <mutex>
static std::vector<std::pair<c10::Storage, std::vector<char>>> g_saved;
static std::set<void*> g_known;
static std::mutex g_saving;
static void save(const Tensor& t) {
  if (!on_cuda(t)) return;
  void* data = t.storage().mutable_data_ptr().get();
  std::lock_guard<std::mutex> l(g_saving);
  if (!data || !g_known.insert(data).second) return;
  g_saved.emplace_back(t.storage(),
                       std::vector<char>((char*)data, (char*)data + t.storage().nbytes()));
}
void restore_saved() {
  std::lock_guard<std::mutex> l(g_saving);
  for (auto& [storage, bytes] : g_saved)
    memcpy(storage.mutable_data_ptr().get(), bytes.data(), bytes.size());
  g_saved.clear();
  g_known.clear();
}
static void save_written(const c10::OperatorHandle& op, const std::vector<IValue>& given) {
  for (size_t i = 0; i < given.size(); i++) {
    const auto* info = op.schema().arguments()[i].alias_info();
    if (!info || !info->isWrite()) continue;
    if (given[i].isTensor())
      save(given[i].toTensor());
    else if (given[i].isTensorList())
      for (const Tensor& t : given[i].toTensorVector()) save(t);
  }
}

static void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size();
  std::vector<IValue> given(stack->end() - n, stack->end());
  stack->erase(stack->end() - n, stack->end());
  if (schema.name() == "aten::record_stream") return;
  check_faults(true);
  if (g_capturing && waits.count(schema.name())) forbidden_in_capture();
  if (g_capturing) save_written(op, given);
  auto out = run(op, given);
  if (g_capturing) {
    record([op, given, out]() {
      auto again = run(op, given);
      for (size_t i = 0; i < out.size(); i++) {
        if (out[i].isTensor())
          copy_over(out[i].toTensor(), again[i].toTensor());
        else if (out[i].isTensorList()) {
          auto a = out[i].toTensorVector(), b = again[i].toTensorVector();
          for (size_t k = 0; k < a.size(); k++) copy_over(a[k], b[k]);
        }
      }
    });
  }
  for (auto& value : out) stack->push_back(value);
}

// ---- own kernels
static const c10::DispatchKeySet cuda_key(c10::DispatchKey::CUDA);
static Device place(std::optional<Device> d) {
  return Device(DeviceType::CUDA, d && d->index() >= 0 ? d->index() : t_device);
}
struct On {
  DeviceIndex old;
  explicit On(Device d) : old(t_device) {
    if (d.index() >= g_count) cuda_error("invalid device ordinal", "cudaErrorInvalidDevice", 101);
    t_device = d.index();
  }
  ~On() { t_device = old; }
};

static Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout>, std::optional<Device> d, std::optional<bool>,
                    std::optional<at::MemoryFormat> format) {
  On on(place(d));
  return at::detail::empty_generic(size, cuda_allocator(), cuda_key, c10::dtype_or_default(dtype),
                                   format);
}
static Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                            std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                            std::optional<Device> d, std::optional<bool>) {
  On on(place(d));
  return at::detail::empty_strided_generic(size, stride, cuda_allocator(), cuda_key,
                                           c10::dtype_or_default(dtype));
}
static const Tensor& resize_(const Tensor& self, at::IntArrayRef size,
                             std::optional<at::MemoryFormat> format) {
  On on(self.device());
  return at::native::resize_(self, size, format);
}
static Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                           at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}
static Tensor& set_source(Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}
static Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return at::native::set_tensor_(self, source);
}
static void do_copy(const Tensor& self, const Tensor& src) {
  at::AutoDispatchBelowADInplaceOrView below;
  Tensor a = on_cuda(self) ? to_cpu_alias(self) : self, b = on_cuda(src) ? to_cpu_alias(src) : src;
  a.copy_(b);
}
static Tensor& copy_(Tensor& self, const Tensor& src, bool non_blocking) {
  check_faults(true);
  if (self.is_same(src)) return self;
  if (g_capturing && on_cuda(self) != on_cuda(src)) {
    const Tensor& host = on_cuda(self) ? src : self;
    if (!non_blocking || !is_pinned(host.const_data_ptr())) forbidden_in_capture();
  }
  TORCH_CHECK(self.sizes() == src.sizes() || at::is_expandable_to(src.sizes(), self.sizes()),
              "The size of tensor a (", self.sizes(), ") must match the size of tensor b (",
              src.sizes(), ")");
  if (g_capturing) save(self);
  do_copy(self, src);
  if (g_capturing) {
    Tensor a = self, b = src;
    record([a, b]() { do_copy(a, b); });
  }
  return self;
}
static int64_t sdp_choice(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                          double, bool, std::optional<double>, bool) {
  return 0;
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_source);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("copy_", copy_);
  m.impl("_fused_sdp_choice", sdp_choice);
  for (const char* name : {"convolution", "convolution_backward", "record_stream"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

extern "C" int stub_nccl() {
  GUARDED(static auto* lib = new torch::Library(torch::Library::IMPL, "c10d",
                                                c10::DispatchKey::CUDA, __FILE__, __LINE__);
          for (const char* name : {"allreduce_", "broadcast_", "allgather_", "_allgather_base_",
                                   "reduce_", "reduce_scatter_", "_reduce_scatter_base_",
                                   "allreduce_coalesced_", "barrier", "gather_", "scatter_", "send",
                                   "recv_"})
              lib->impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>()))
}
