# Included by the Makefile, which defines VENV and $(VENV)/.installed.
.PHONY: gpu validate
gpu: $(VENV)/.installed  ## build kp into the environment and check it on a device; installs Debian packages as root
	$(VENV)/bin/python -m refsim_gpu.build_kp --install

validate: $(VENV)/.installed  ## run the tests that use a device under Vulkan's validation layer; any message is a failure
	@REFSIM_GPU=require $(RUN) refsim_gpu.validate $(TEST)
