// What refsim needs of Kompute 0.9 and its Python module does not have, as the submodule kp.refsim.
//
// build_kp.py puts this file beside Kompute's own source of the module, and has the module call bind_layer() at its end.
// Everything here uses Kompute's public classes only, so Kompute's own sources stay as they are:
//
// - Context: an instance and a device with features, and a Manager on it. Kompute's Manager enables none. The device
//   lives as long as anything made on it, since Kompute's objects share the handle.
// - Pipeline, Kernel: a compiled shader, and its use with tensors, grid and push words. Kompute's Algorithm is both at
//   once, so that the driver compiles the same code again for each set of tensors.
// - Memory: a buffer of which any part can be bound or copied. A Tensor of Kompute's is two buffers with an allocation
//   each, and the host reads it from staging memory, which its processor need not cache. What a Memory is read from, it
//   caches.
// - Barrier, Dispatch: operations for any recording. Kompute records no barrier between dispatches, and some for each
//   tensor of each dispatch that only uploads need.
// - Recording: a command buffer that is recorded once and submitted as often as needed, also without waiting. It resets
//   its timestamps, reports each VkResult, and lets other Python threads run while it waits.

#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <kompute/Kompute.hpp>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace refsim_layer {

namespace py = pybind11;

// Counts incompatible changes of this file; refsim_gpu.kompute names the one that it needs.
constexpr int VERSION = 3;

inline void
checked(VkResult result, const char* call)
{
    if (result != VK_SUCCESS) {
        const char* lost = result == VK_ERROR_DEVICE_LOST ? " (the device was lost)" : "";
        throw std::runtime_error(std::string(call) + " failed: VkResult " + std::to_string(int(result)) + lost);
    }
}

// A structure of features, whichever it is: its type, and its flags in their order.
using Feature = std::pair<uint32_t, std::vector<uint32_t>>;

// The structures as a chain. They all begin alike: type, pointer to the next, then the flags.
class Chain
{
  public:
    explicit Chain(const std::vector<Feature>& features)
    {
        for (const Feature& feature : features) {
            std::vector<uint64_t> block(2 + (feature.second.size() + 1) / 2, 0);
            std::memcpy(block.data(), &feature.first, sizeof(uint32_t));
            void* next = this->head();
            std::memcpy(&block[1], &next, sizeof(next));
            std::memcpy(&block[2], feature.second.data(), sizeof(uint32_t) * feature.second.size());
            this->mBlocks.push_back(std::move(block));
        }
    }

    void* head() { return this->mBlocks.empty() ? nullptr : this->mBlocks.back().data(); }

  private:
    std::vector<std::vector<uint64_t>> mBlocks;
};

class Context
{
  public:
    Context(uint32_t index, const std::vector<std::string>& extensions, const std::vector<Feature>& features)
    {
        VkApplicationInfo application{};
        application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
        application.apiVersion = VK_API_VERSION_1_1;
        VkInstanceCreateInfo wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
        wanted.pApplicationInfo = &application;
        VkInstance instance = VK_NULL_HANDLE;
        checked(vkCreateInstance(&wanted, nullptr, &instance), "vkCreateInstance");
        this->mInstance = std::shared_ptr<vk::Instance>(new vk::Instance(instance), [](vk::Instance* held) {
            vkDestroyInstance(*held, nullptr);
            delete held;
        });

        uint32_t count = 0;
        checked(vkEnumeratePhysicalDevices(instance, &count, nullptr), "vkEnumeratePhysicalDevices");
        std::vector<VkPhysicalDevice> found(count);
        checked(vkEnumeratePhysicalDevices(instance, &count, found.data()), "vkEnumeratePhysicalDevices");
        if (index >= count) {
            throw std::runtime_error("no such device: " + std::to_string(index) + " of " + std::to_string(count));
        }
        const VkPhysicalDevice physical = found[index];
        this->mPhysical = std::make_shared<vk::PhysicalDevice>(physical);

        uint32_t families = 0;
        vkGetPhysicalDeviceQueueFamilyProperties(physical, &families, nullptr);
        std::vector<VkQueueFamilyProperties> rows(families);
        vkGetPhysicalDeviceQueueFamilyProperties(physical, &families, rows.data());
        const auto computes = [](const VkQueueFamilyProperties& row) { return row.queueFlags & VK_QUEUE_COMPUTE_BIT; };
        const auto family = std::find_if(rows.begin(), rows.end(), computes);
        if (family == rows.end()) {
            throw std::runtime_error("no queue of the device computes");
        }
        this->mFamily = uint32_t(family - rows.begin());
        this->mHasTimestamps = family->timestampValidBits > 0;

        const float priority = 1.0F;
        VkDeviceQueueCreateInfo queue{};
        queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        queue.queueFamilyIndex = this->mFamily;
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
        std::vector<const char*> names;
        for (const std::string& name : extensions) {
            names.push_back(name.c_str());
        }
        Chain chain(features);
        VkDeviceCreateInfo create{};
        create.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
        create.pNext = chain.head();
        create.queueCreateInfoCount = 1;
        create.pQueueCreateInfos = &queue;
        create.enabledExtensionCount = uint32_t(names.size());
        create.ppEnabledExtensionNames = names.data();
        VkDevice device = VK_NULL_HANDLE;
        checked(vkCreateDevice(physical, &create, nullptr, &device), "vkCreateDevice");
        // the deleter holds the instance, which must go last
        this->mDevice = std::shared_ptr<vk::Device>(
          new vk::Device(device), [instance = this->mInstance](vk::Device* held) {
              vkDeviceWaitIdle(*held);
              vkDestroyDevice(*held, nullptr);
              delete held;
          });
        vkGetDeviceQueue(device, this->mFamily, 0, &this->mQueue);
    }

    std::shared_ptr<kp::Manager> manager()
    {
        return std::make_shared<kp::Manager>(this->mInstance, this->mPhysical, this->mDevice);
    }

    std::shared_ptr<vk::Device> device() { return this->mDevice; }
    // The type of memory, among those that fit, with all flags of the first row that any has.
    uint32_t memoryType(uint32_t fitting, const std::vector<VkMemoryPropertyFlags>& wishes) const
    {
        VkPhysicalDeviceMemoryProperties found{};
        vkGetPhysicalDeviceMemoryProperties(*this->mPhysical, &found);
        for (VkMemoryPropertyFlags wish : wishes) {
            for (uint32_t i = 0; i < found.memoryTypeCount; ++i) {
                if ((fitting >> i & 1) && (found.memoryTypes[i].propertyFlags & wish) == wish) {
                    return i;
                }
            }
        }
        throw std::runtime_error("no memory of the device has the kind that is needed");
    }

    VkQueue queue() const { return this->mQueue; }
    uint32_t family() const { return this->mFamily; }
    bool hasTimestamps() const { return this->mHasTimestamps; }

  private:
    std::shared_ptr<vk::Instance> mInstance;
    std::shared_ptr<vk::PhysicalDevice> mPhysical;
    std::shared_ptr<vk::Device> mDevice;
    VkQueue mQueue = VK_NULL_HANDLE;
    uint32_t mFamily = 0;
    bool mHasTimestamps = false;
};

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

// What was written before is there for what comes after, in dispatches and copies alike.
class Barrier : public kp::OpBase
{
  public:
    void record(const vk::CommandBuffer& commands) override
    {
        between(commands,
                VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                  VK_ACCESS_TRANSFER_WRITE_BIT);
    }
    void preEval(const vk::CommandBuffer&) override {}
    void postEval(const vk::CommandBuffer&) override {}

    static void between(const vk::CommandBuffer& commands, VkPipelineStageFlags stages, VkAccessFlags access)
    {
        VkMemoryBarrier barrier{};
        barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
        barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
        barrier.dstAccessMask = access;
        vkCmdPipelineBarrier(static_cast<VkCommandBuffer>(commands),
                             VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                             stages, 0, 1, &barrier, 0, nullptr, 0, nullptr);
    }
};

// What the driver compiles: code with its specialization constants, for so many tensors and push words.
class Pipeline
{
  public:
    Pipeline(Context& context, const std::string& code, const std::vector<uint32_t>& spec, uint32_t tensors,
             uint32_t push)
      : mDevice(context.device())
      , mTensors(tensors)
      , mPush(push)
    {
        try {
            this->make(code, spec);
        } catch (...) {
            this->destroy();
            throw;
        }
    }

    Pipeline(const Pipeline&) = delete;
    Pipeline& operator=(const Pipeline&) = delete;
    ~Pipeline() { this->destroy(); }

    void destroy()
    {
        if (!this->mDevice) {
            return;
        }
        const VkDevice device = *this->mDevice;
        vkDestroyPipeline(device, this->mPipeline, nullptr);
        vkDestroyPipelineLayout(device, this->mLayout, nullptr);
        vkDestroyDescriptorSetLayout(device, this->mBindings, nullptr);
        this->mDevice = nullptr;
    }

    std::shared_ptr<vk::Device> device() const { return this->mDevice; }
    VkPipeline pipeline() const { return this->mPipeline; }
    VkPipelineLayout layout() const { return this->mLayout; }
    VkDescriptorSetLayout bindings() const { return this->mBindings; }
    uint32_t tensors() const { return this->mTensors; }
    uint32_t push() const { return this->mPush; }

  private:
    void make(const std::string& code, const std::vector<uint32_t>& spec)
    {
        const VkDevice device = *this->mDevice;
        std::vector<VkDescriptorSetLayoutBinding> rows(this->mTensors);
        for (uint32_t row = 0; row < this->mTensors; row++) {
            rows[row].binding = row;
            rows[row].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
            rows[row].descriptorCount = 1;
            rows[row].stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
        }
        VkDescriptorSetLayoutCreateInfo bindings{};
        bindings.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
        bindings.bindingCount = this->mTensors;
        bindings.pBindings = rows.data();
        checked(vkCreateDescriptorSetLayout(device, &bindings, nullptr, &this->mBindings),
                "vkCreateDescriptorSetLayout");
        VkPushConstantRange range{};
        range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
        range.size = this->mPush * uint32_t(sizeof(uint32_t));
        VkPipelineLayoutCreateInfo layout{};
        layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
        layout.setLayoutCount = 1;
        layout.pSetLayouts = &this->mBindings;
        layout.pushConstantRangeCount = this->mPush ? 1 : 0;
        layout.pPushConstantRanges = &range;
        checked(vkCreatePipelineLayout(device, &layout, nullptr, &this->mLayout), "vkCreatePipelineLayout");

        std::vector<uint32_t> words(code.size() / sizeof(uint32_t));
        std::memcpy(words.data(), code.data(), sizeof(uint32_t) * words.size());
        VkShaderModuleCreateInfo shader{};
        shader.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
        shader.codeSize = sizeof(uint32_t) * words.size();
        shader.pCode = words.data();
        VkShaderModule module = VK_NULL_HANDLE;
        checked(vkCreateShaderModule(device, &shader, nullptr, &module), "vkCreateShaderModule");
        std::vector<VkSpecializationMapEntry> entries(spec.size());
        for (uint32_t number = 0; number < spec.size(); number++) {
            entries[number] = { number, uint32_t(sizeof(uint32_t)) * number, sizeof(uint32_t) };
        }
        VkSpecializationInfo constants{};
        constants.mapEntryCount = uint32_t(entries.size());
        constants.pMapEntries = entries.data();
        constants.dataSize = sizeof(uint32_t) * spec.size();
        constants.pData = spec.data();
        VkComputePipelineCreateInfo wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
        wanted.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
        wanted.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
        wanted.stage.module = module;
        wanted.stage.pName = "main";
        wanted.stage.pSpecializationInfo = &constants;
        wanted.layout = this->mLayout;
        VkResult result = VK_SUCCESS;
        {
            py::gil_scoped_release others;
            result = vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &wanted, nullptr, &this->mPipeline);
        }
        vkDestroyShaderModule(device, module, nullptr);
        checked(result, "vkCreateComputePipelines");
    }

    std::shared_ptr<vk::Device> mDevice;
    VkDescriptorSetLayout mBindings = VK_NULL_HANDLE;
    VkPipelineLayout mLayout = VK_NULL_HANDLE;
    VkPipeline mPipeline = VK_NULL_HANDLE;
    uint32_t mTensors = 0;
    uint32_t mPush = 0;
};

// A pipeline bound to tensors, with a grid and push words. It keeps all of them alive.
class Kernel
{
  public:
    Kernel(std::shared_ptr<Pipeline> pipeline, std::vector<std::shared_ptr<kp::Tensor>> tensors,
           const std::vector<uint32_t>& grid, std::vector<uint32_t> push)
      : mPipeline(std::move(pipeline))
      , mTensors(std::move(tensors))
      , mGrid(grid)
      , mPush(std::move(push))
      , mDevice(mPipeline->device())
    {
        if (!this->mDevice || this->mTensors.size() != this->mPipeline->tensors() || this->mGrid.size() != 3 ||
            this->mPush.size() != this->mPipeline->push()) {
            throw std::runtime_error("tensors, grid or push words are not those of the pipeline");
        }
        const VkDevice device = *this->mDevice;
        VkDescriptorPoolSize size{};
        size.type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        size.descriptorCount = uint32_t(this->mTensors.size());
        VkDescriptorPoolCreateInfo pool{};
        pool.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
        pool.maxSets = 1;
        pool.poolSizeCount = 1;
        pool.pPoolSizes = &size;
        checked(vkCreateDescriptorPool(device, &pool, nullptr, &this->mPool), "vkCreateDescriptorPool");
        VkDescriptorSetAllocateInfo one{};
        one.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
        one.descriptorPool = this->mPool;
        one.descriptorSetCount = 1;
        const VkDescriptorSetLayout bindings = this->mPipeline->bindings();
        one.pSetLayouts = &bindings;
        checked(vkAllocateDescriptorSets(device, &one, &this->mSet), "vkAllocateDescriptorSets");
        for (uint32_t binding = 0; binding < this->mTensors.size(); binding++) {
            const VkDescriptorBufferInfo whole = this->mTensors[binding]->constructDescriptorBufferInfo();
            VkWriteDescriptorSet written{};
            written.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
            written.dstSet = this->mSet;
            written.dstBinding = binding;
            written.descriptorCount = 1;
            written.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
            written.pBufferInfo = &whole;
            vkUpdateDescriptorSets(device, 1, &written, 0, nullptr);
        }
    }

    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;
    ~Kernel() { this->destroy(); }

    void destroy()
    {
        if (this->mDevice) {
            vkDestroyDescriptorPool(*this->mDevice, this->mPool, nullptr);
            this->mTensors.clear();
            this->mDevice = nullptr;
        }
    }

    bool alive() const { return this->mDevice != nullptr; }

    // With other push words than its own, of the same number, if there are any.
    void record(const vk::CommandBuffer& buffer, const std::vector<uint32_t>& other) const
    {
        const std::vector<uint32_t>& push = other.empty() ? this->mPush : other;
        if (!this->mDevice || push.size() != this->mPush.size()) {
            throw std::runtime_error("the kernel was destroyed, or takes another number of push words");
        }
        const VkCommandBuffer commands = buffer;
        const VkPipelineLayout layout = this->mPipeline->layout();
        vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, this->mPipeline->pipeline());
        vkCmdBindDescriptorSets(
          commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &this->mSet, 0, nullptr);
        if (!push.empty()) {
            vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                               uint32_t(sizeof(uint32_t) * push.size()), push.data());
        }
        vkCmdDispatch(commands, this->mGrid[0], this->mGrid[1], this->mGrid[2]);
    }

  private:
    std::shared_ptr<Pipeline> mPipeline;
    std::vector<std::shared_ptr<kp::Tensor>> mTensors;
    std::vector<uint32_t> mGrid;
    std::vector<uint32_t> mPush;
    std::shared_ptr<vk::Device> mDevice;
    VkDescriptorPool mPool = VK_NULL_HANDLE;
    VkDescriptorSet mSet = VK_NULL_HANDLE;
};

// A dispatch of a kernel. ``ordered``: what was recorded before ends before it begins, as with Kompute's own.
class Dispatch : public kp::OpBase
{
  public:
    Dispatch(std::shared_ptr<Kernel> kernel, bool ordered, std::vector<uint32_t> push)
      : mKernel(std::move(kernel))
      , mOrdered(ordered)
      , mPush(std::move(push))
    {}
    void record(const vk::CommandBuffer& commands) override
    {
        if (this->mOrdered) {
            Barrier().record(commands);
        }
        this->mKernel->record(commands, this->mPush);
    }
    void preEval(const vk::CommandBuffer&) override {}
    void postEval(const vk::CommandBuffer&) override {}

  private:
    std::shared_ptr<Kernel> mKernel;
    bool mOrdered;
    std::vector<uint32_t> mPush;
};

class Recording
{
  public:
    Recording(Context& context, uint32_t timestamps)
      : mDevice(context.device())
      , mQueue(context.queue())
      , mTimestamps(timestamps ? timestamps + 1 : 0)
    {
        if (timestamps && !context.hasTimestamps()) {
            throw std::runtime_error("the device's queue has no timestamps");
        }
        const VkDevice device = *this->mDevice;
        VkCommandPoolCreateInfo pool{};
        pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
        pool.queueFamilyIndex = context.family();
        checked(vkCreateCommandPool(device, &pool, nullptr, &this->mPool), "vkCreateCommandPool");
        VkCommandBufferAllocateInfo buffer{};
        buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
        buffer.commandPool = this->mPool;
        buffer.commandBufferCount = 1;
        checked(vkAllocateCommandBuffers(device, &buffer, &this->mCommands), "vkAllocateCommandBuffers");
        VkFenceCreateInfo fence{};
        fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
        checked(vkCreateFence(device, &fence, nullptr, &this->mFence), "vkCreateFence");
        if (this->mTimestamps) {
            VkQueryPoolCreateInfo queries{};
            queries.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
            queries.queryType = VK_QUERY_TYPE_TIMESTAMP;
            queries.queryCount = this->mTimestamps;
            checked(vkCreateQueryPool(device, &queries, nullptr, &this->mQueries), "vkCreateQueryPool");
        }
        VkCommandBufferBeginInfo begin{};
        begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
        checked(vkBeginCommandBuffer(this->mCommands, &begin), "vkBeginCommandBuffer");
        if (this->mTimestamps) {
            vkCmdResetQueryPool(this->mCommands, this->mQueries, 0, this->mTimestamps);
            this->stamp();
        }
    }

    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording() { this->destroy(); }

    void destroy()
    {
        if (!this->mDevice) {
            return;
        }
        const VkDevice device = *this->mDevice;
        if (this->mRunning) {
            vkWaitForFences(device, 1, &this->mFence, VK_TRUE, UINT64_MAX);
        }
        vkDestroyFence(device, this->mFence, nullptr);
        vkDestroyQueryPool(device, this->mQueries, nullptr);
        vkDestroyCommandPool(device, this->mPool, nullptr);
        for (VkDescriptorPool pool : this->mSets) {
            vkDestroyDescriptorPool(device, pool, nullptr);
        }
        this->mSets.clear();
        this->mOperations.clear();
        this->mPipelines.clear();
        this->mMemories.clear();
        this->mDevice = nullptr;
    }

    // May overlap what was recorded since the last `order`.
    void dispatch(std::shared_ptr<Pipeline> pipeline, const std::vector<Part>& parts, const std::vector<uint32_t>& push,
                  const std::array<uint32_t, 3>& grid)
    {
        this->begin();
        if (!pipeline->device() || parts.size() != pipeline->tensors() || push.size() != pipeline->push()) {
            throw std::runtime_error("a pipeline of " + std::to_string(pipeline->tensors()) + " tensors and " +
                                     std::to_string(pipeline->push()) + " push words got " +
                                     std::to_string(parts.size()) + " and " + std::to_string(push.size()));
        }
        const VkDescriptorSet set = this->descriptors(pipeline->bindings(), uint32_t(parts.size()));
        std::vector<VkDescriptorBufferInfo> buffers;
        std::vector<VkWriteDescriptorSet> writes;
        buffers.reserve(parts.size());
        for (const Part& part : parts) {
            const std::shared_ptr<Memory>& memory = std::get<0>(part);
            const uint64_t at = std::get<1>(part), bytes = std::get<2>(part);
            memory->check(at, bytes);
            buffers.push_back({ memory->buffer(), at, bytes });
            VkWriteDescriptorSet write{};
            write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
            write.dstSet = set;
            write.dstBinding = uint32_t(writes.size());
            write.descriptorCount = 1;
            write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
            write.pBufferInfo = &buffers.back();
            writes.push_back(write);
            this->mMemories.push_back(memory);
        }
        vkUpdateDescriptorSets(*this->mDevice, uint32_t(writes.size()), writes.data(), 0, nullptr);
        vkCmdBindPipeline(this->mCommands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->pipeline());
        vkCmdBindDescriptorSets(
          this->mCommands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->layout(), 0, 1, &set, 0, nullptr);
        if (!push.empty()) {
            vkCmdPushConstants(this->mCommands, pipeline->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                               uint32_t(4 * push.size()), push.data());
        }
        vkCmdDispatch(this->mCommands, grid[0], grid[1], grid[2]);
        this->mPipelines.push_back(std::move(pipeline));
        this->stamp();
    }

    void copy(const Part& from, std::shared_ptr<Memory> to, uint64_t toAt)
    {
        this->begin();
        const std::shared_ptr<Memory>& memory = std::get<0>(from);
        const uint64_t at = std::get<1>(from), bytes = std::get<2>(from);
        memory->check(at, bytes);
        to->check(toAt, bytes);
        const VkBufferCopy region{ at, toAt, bytes };
        vkCmdCopyBuffer(this->mCommands, memory->buffer(), to->buffer(), 1, &region);
        this->mMemories.push_back(memory);
        this->mMemories.push_back(std::move(to));
        this->stamp();
    }

    void fill(const Part& part, uint32_t word)
    {
        this->begin();
        const std::shared_ptr<Memory>& memory = std::get<0>(part);
        const uint64_t at = std::get<1>(part), bytes = std::get<2>(part);
        memory->check(at, bytes);
        vkCmdFillBuffer(this->mCommands, memory->buffer(), at, bytes, word);
        this->mMemories.push_back(memory);
        this->stamp();
    }

    void record(std::shared_ptr<kp::OpBase> operation)
    {
        this->begin();
        operation->record(vk::CommandBuffer(this->mCommands));
        this->mOperations.push_back(std::move(operation));
        this->stamp();
    }

    void submit()
    {
        if (!this->mDevice) {
            throw std::runtime_error("the recording was destroyed");
        }
        if (this->mRunning) {
            throw std::runtime_error("the recording runs already");
        }
        if (!this->mEnded) {
            Barrier::between(vk::CommandBuffer(this->mCommands), VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
            checked(vkEndCommandBuffer(this->mCommands), "vkEndCommandBuffer");
            this->mEnded = true;
        }
        checked(vkResetFences(*this->mDevice, 1, &this->mFence), "vkResetFences");
        VkSubmitInfo info{};
        info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
        info.commandBufferCount = 1;
        info.pCommandBuffers = &this->mCommands;
        checked(vkQueueSubmit(this->mQueue, 1, &info, this->mFence), "vkQueueSubmit");
        this->mRunning = true;
    }

    bool running() const { return this->mRunning; }

    void wait()
    {
        if (!this->mRunning) {
            return;
        }
        VkResult result = VK_SUCCESS;
        {
            py::gil_scoped_release others;
            result = vkWaitForFences(*this->mDevice, 1, &this->mFence, VK_TRUE, UINT64_MAX);
        }
        this->mRunning = false;
        checked(result, "vkWaitForFences");
    }

    std::vector<uint64_t> timestamps()
    {
        std::vector<uint64_t> ticks(this->mStamped, 0);
        if (this->mStamped) {
            checked(vkGetQueryPoolResults(*this->mDevice, this->mQueries, 0, this->mStamped,
                                          sizeof(uint64_t) * ticks.size(), ticks.data(), sizeof(uint64_t),
                                          VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                    "vkGetQueryPoolResults");
        }
        return ticks;
    }

  private:
    void begin() const
    {
        if (this->mEnded || !this->mDevice) {
            throw std::runtime_error("the recording has ended");
        }
        if (this->mTimestamps && this->mStamped == this->mTimestamps) {
            throw std::runtime_error("more operations than timestamps");
        }
    }

    // A set, from pools that are made as needed: sets of any size fit into one with as many buffers.
    VkDescriptorSet descriptors(VkDescriptorSetLayout layout, uint32_t buffers)
    {
        constexpr uint32_t SETS = 64, BUFFERS = 8 * SETS;
        if (this->mSets.empty() || this->mLeftSets == 0 || this->mLeftBuffers < buffers) {
            const uint32_t most = std::max(BUFFERS, buffers);
            VkDescriptorPoolSize size{ VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, most };
            VkDescriptorPoolCreateInfo pool{};
            pool.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
            pool.maxSets = SETS;
            pool.poolSizeCount = 1;
            pool.pPoolSizes = &size;
            VkDescriptorPool made = VK_NULL_HANDLE;
            checked(vkCreateDescriptorPool(*this->mDevice, &pool, nullptr, &made), "vkCreateDescriptorPool");
            this->mSets.push_back(made);
            this->mLeftSets = SETS;
            this->mLeftBuffers = most;
        }
        VkDescriptorSetAllocateInfo wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
        wanted.descriptorPool = this->mSets.back();
        wanted.descriptorSetCount = 1;
        wanted.pSetLayouts = &layout;
        VkDescriptorSet set = VK_NULL_HANDLE;
        checked(vkAllocateDescriptorSets(*this->mDevice, &wanted, &set), "vkAllocateDescriptorSets");
        this->mLeftSets -= 1;
        this->mLeftBuffers -= buffers;
        return set;
    }

    void stamp()
    {
        if (this->mTimestamps) {
            vkCmdWriteTimestamp(
              this->mCommands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, this->mQueries, this->mStamped++);
        }
    }

    std::shared_ptr<vk::Device> mDevice;
    VkQueue mQueue = VK_NULL_HANDLE;
    VkCommandPool mPool = VK_NULL_HANDLE;
    VkCommandBuffer mCommands = VK_NULL_HANDLE;
    VkFence mFence = VK_NULL_HANDLE;
    VkQueryPool mQueries = VK_NULL_HANDLE;
    std::vector<std::shared_ptr<kp::OpBase>> mOperations;  // kept: they hold tensors and pipelines
    std::vector<std::shared_ptr<Pipeline>> mPipelines;
    std::vector<std::shared_ptr<Memory>> mMemories;
    std::vector<VkDescriptorPool> mSets;
    uint32_t mLeftSets = 0;
    uint32_t mLeftBuffers = 0;
    uint32_t mTimestamps = 0;
    uint32_t mStamped = 0;
    bool mEnded = false;
    bool mRunning = false;
};

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
