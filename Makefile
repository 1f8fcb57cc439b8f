# The course's commands. Each sets up .venv itself: slow once, and when pyproject.toml changes.
#   make lab PYTHON=python3.12 JUPYTER_ARGS=--no-browser
#   make test PYTEST_ARGS="-k outer_add"

PYTHON ?=
JUPYTER_ARGS ?=
PYTEST_ARGS ?=
RELEASE_ARGS ?=

unexport TRITON_INTERPRET  # the course never sets it: it would keep kernels from compiling

.PHONY: help venv lab test test-next lint notebooks explorer clean

help:
	@echo "make lab        open the course in JupyterLab (JUPYTER_ARGS=--no-browser)"
	@echo "make test       run the tests (PYTEST_ARGS=...)"
	@echo "make test-next  compile the production kernels with the newest Triton"
	@echo "make lint       check style with ruff, types with mypy"
	@echo "make notebooks  execute solutions/, write notebooks/ from them (RELEASE_ARGS=--check)"
	@echo "make explorer   bundle anew what triton-viz's page imports (needs npm)"
	@echo "make clean      remove .venv and caches"

venv:
	@PYTHON="$(PYTHON)" bash .setup/venv.sh

# Encrypted: otherwise each kernel warns, rightly, of others on the machine who listen.
lab: venv
	.venv/bin/jupyter lab --KernelManager.transport_encryption=auto \
		--LabApp.default_url=/lab/tree/notebooks/00_welcome.ipynb $(JUPYTER_ARGS)

test: venv
	.venv/bin/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

# In a virtual environment of its own, .venv-next: the course itself works with the pinned Triton only.
test-next:
	@PYTHON="$(PYTHON)" bash .setup/next.sh
	.venv-next/bin/python -m pytest tests/test_kernels_compile.py tests/test_dequant_gemm_rows.py \
		tests/test_dequant_gemm_hopper.py $(PYTEST_ARGS)

lint: venv
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

notebooks: venv
	.venv/bin/python -m puzzles_lib.authoring.release $(RELEASE_ARGS)

explorer:
	bash .setup/explorer/bundle.sh

clean:
	rm -rf .venv .venv-next .screenshots .pytest_cache .ruff_cache *.egg-info build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
