// A compiled shader, and its use with tensors, grid and push words. Kompute's Algorithm is both at once, so that the
// driver compiles the same code again for each set of tensors.

#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <kompute/Kompute.hpp>
#include <pybind11/pybind11.h>

#include "context.hpp"

namespace refsim_layer {

namespace py = pybind11;

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

} // namespace refsim_layer
