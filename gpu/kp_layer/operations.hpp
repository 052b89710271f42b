// Operations for any recording. Kompute records no barrier between dispatches, and some for each tensor of each dispatch
// that only uploads need.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <kompute/Kompute.hpp>

#include "pipeline.hpp"

namespace refsim_layer {

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

} // namespace refsim_layer
