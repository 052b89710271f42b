// What refsim needs of Kompute 0.9 and its Python module does not have, as the submodule kp.refsim.
//
// build_kp.py puts this folder beside Kompute's own source of the module, and has the module call bind_layer() at its
// end. Everything here uses Kompute's public classes only, so Kompute's own sources stay as they are.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kompute/Kompute.hpp>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "context.hpp"
#include "memory.hpp"
#include "operations.hpp"
#include "pipeline.hpp"
#include "recording.hpp"

namespace refsim_layer {

namespace py = pybind11;

// Counts incompatible changes of this folder; refsim_gpu.kompute names the one that it needs.
constexpr int VERSION = 3;

inline void
bind_layer(py::module_& module)
{
    py::module_ m = module.def_submodule("refsim", "What refsim adds to Kompute's own module.");
    m.attr("VERSION") = VERSION;
    py::class_<Context, std::shared_ptr<Context>>(m, "Context")
      .def(py::init<uint32_t, const std::vector<std::string>&, const std::vector<Feature>&>(),
           py::arg("index"), py::arg("extensions"), py::arg("features"))
      .def("manager", &Context::manager)
      .def("has_timestamps", &Context::hasTimestamps);
    py::class_<Memory, std::shared_ptr<Memory>>(m, "Memory")
      .def(py::init<Context&, uint64_t, uint32_t>(), py::arg("context"), py::arg("bytes"), py::arg("use"))
      .def("words", &Memory::words)
      .def("bytes", &Memory::bytes)
      .def("destroy", &Memory::destroy);
    m.attr("ON_DEVICE") = uint32_t(ON_DEVICE);
    m.attr("HOST_WRITES") = uint32_t(HOST_WRITES);
    m.attr("HOST_READS") = uint32_t(HOST_READS);
    py::class_<Barrier, kp::OpBase, std::shared_ptr<Barrier>>(m, "Barrier").def(py::init<>());
    py::class_<Pipeline, std::shared_ptr<Pipeline>>(m, "Pipeline")
      .def(py::init([](Context& context, const py::bytes& code, const std::vector<uint32_t>& spec, uint32_t tensors,
                       uint32_t push) {
               return std::make_shared<Pipeline>(context, std::string(code), spec, tensors, push);
           }),
           py::arg("context"), py::arg("code"), py::arg("spec"), py::arg("tensors"), py::arg("push"))
      .def("destroy", &Pipeline::destroy);
    py::class_<Kernel, std::shared_ptr<Kernel>>(m, "Kernel")
      .def(py::init<std::shared_ptr<Pipeline>, std::vector<std::shared_ptr<kp::Tensor>>,
                    const std::vector<uint32_t>&, std::vector<uint32_t>>(),
           py::arg("pipeline"), py::arg("tensors"), py::arg("grid"), py::arg("push"))
      .def("is_init", &Kernel::alive)
      .def("destroy", &Kernel::destroy);
    py::class_<Dispatch, kp::OpBase, std::shared_ptr<Dispatch>>(m, "Dispatch")
      .def(py::init<std::shared_ptr<Kernel>, bool, std::vector<uint32_t>>(), py::arg("kernel"),
           py::arg("ordered") = false, py::arg("push") = std::vector<uint32_t>());
    py::class_<Recording, std::shared_ptr<Recording>>(m, "Recording")
      .def(py::init<Context&, uint32_t>(), py::arg("context"), py::arg("timestamps") = 0)
      .def("record", [](std::shared_ptr<Recording> self, std::shared_ptr<kp::OpBase> operation) {
          self->record(std::move(operation));
          return self;
      })
      .def("dispatch", &Recording::dispatch, py::arg("pipeline"), py::arg("parts"), py::arg("push"), py::arg("grid"))
      .def("copy", &Recording::copy, py::arg("source"), py::arg("to"), py::arg("at"))
      .def("fill", &Recording::fill, py::arg("part"), py::arg("word"))
      .def("running", &Recording::running)
      .def("submit", &Recording::submit)
      .def("wait", &Recording::wait)
      .def("eval", [](std::shared_ptr<Recording> self) {
          self->submit();
          self->wait();
          return self;
      })
      .def("get_timestamps", &Recording::timestamps)
      .def("destroy", &Recording::destroy);
}

} // namespace refsim_layer
