// A buffer of which any part can be bound or copied. A Tensor of Kompute's is two buffers with an allocation each, and
// the host reads it from staging memory, which its processor need not cache. What a Memory is read from, it caches.

#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <kompute/Kompute.hpp>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "context.hpp"

namespace refsim_layer {

namespace py = pybind11;

// What memory is for: kernels, data that the host writes, or data that the host reads.
enum Use : uint32_t
{
    ON_DEVICE = 0,
    HOST_WRITES = 1,
    HOST_READS = 2
};

class Memory
{
  public:
    Memory(Context& context, uint64_t bytes, uint32_t use)
      : mDevice(context.device())
      , mBytes(bytes)
    {
        const VkDevice device = *this->mDevice;
        VkBufferCreateInfo wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
        wanted.size = bytes;
        wanted.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                       VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        checked(vkCreateBuffer(device, &wanted, nullptr, &this->mBuffer), "vkCreateBuffer");
        try {
            this->allocate(context, use);
        } catch (...) {
            this->destroy();
            throw;
        }
    }

    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { this->destroy(); }

    void destroy()
    {
        if (this->mDevice) {
            vkDestroyBuffer(*this->mDevice, this->mBuffer, nullptr);
            vkFreeMemory(*this->mDevice, this->mMemory, nullptr); // unmaps it
            this->mData = nullptr;
            this->mDevice = nullptr;
        }
    }

    VkBuffer buffer() const { return this->mBuffer; }
    uint64_t bytes() const { return this->mBytes; }

    void check(uint64_t at, uint64_t bytes) const
    {
        if (!this->mDevice || at > this->mBytes || bytes > this->mBytes - at || at % 4 || bytes % 4 || !bytes) {
            throw std::runtime_error("no such part of a memory: " + std::to_string(bytes) + " bytes at " +
                                     std::to_string(at) + " of " + std::to_string(this->mBytes));
        }
    }

    // The words, for as long as the device is open; `owner` is this object.
    static py::array words(const std::shared_ptr<Memory>& self)
    {
        if (!self->mData) {
            throw std::runtime_error("the host does not see this memory");
        }
        return py::array(py::dtype::of<uint32_t>(), { py::ssize_t(self->mBytes / 4) }, { py::ssize_t(4) },
                         self->mData, py::cast(self));
    }

  private:
    void allocate(Context& context, uint32_t use)
    {
        const VkDevice device = *this->mDevice;
        VkMemoryRequirements needs{};
        vkGetBufferMemoryRequirements(device, this->mBuffer, &needs);
        const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
        const std::vector<VkMemoryPropertyFlags> wishes[] = {
            { VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT }, { seen }, { seen | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, seen }
        };
        VkMemoryAllocateInfo wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        wanted.allocationSize = needs.size;
        wanted.memoryTypeIndex = context.memoryType(needs.memoryTypeBits, wishes[use]);
        checked(vkAllocateMemory(device, &wanted, nullptr, &this->mMemory), "vkAllocateMemory");
        checked(vkBindBufferMemory(device, this->mBuffer, this->mMemory, 0), "vkBindBufferMemory");
        if (use != ON_DEVICE) {
            checked(vkMapMemory(device, this->mMemory, 0, VK_WHOLE_SIZE, 0, &this->mData), "vkMapMemory");
        }
    }

    std::shared_ptr<vk::Device> mDevice;
    VkBuffer mBuffer = VK_NULL_HANDLE;
    VkDeviceMemory mMemory = VK_NULL_HANDLE;
    void* mData = nullptr;
    uint64_t mBytes = 0;
};

// A part of a memory: where it begins and how many bytes it has.
using Part = std::tuple<std::shared_ptr<Memory>, uint64_t, uint64_t>;

} // namespace refsim_layer
