# Included by the Makefile, which defines VENV and $(VENV)/.installed.
.PHONY: gpu
gpu: $(VENV)/.installed  ## build kp into the environment and check it on a device; installs Debian packages as root
	$(VENV)/bin/python -m refsim_gpu.build_kp --install
