// An instance and a device with features, and a Manager on it. Kompute's Manager enables none. The device lives as long
// as anything made on it, since Kompute's objects share the handle.

#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <kompute/Kompute.hpp>

namespace refsim_layer {

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

} // namespace refsim_layer
