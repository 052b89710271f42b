// A command buffer that is recorded once and submitted as often as needed, also without waiting. It resets its
// timestamps, reports each VkResult, and lets other Python threads run while it waits.

#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <kompute/Kompute.hpp>
#include <pybind11/pybind11.h>

#include "context.hpp"
#include "memory.hpp"
#include "operations.hpp"
#include "pipeline.hpp"

namespace refsim_layer {

namespace py = pybind11;

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

} // namespace refsim_layer
