# The course's commands. Each brings .venv up to date first: slow once, and when pyproject.toml changes.
#   make lab TORCH=cpu                      PyTorch's small build, without CUDA
#   make lab PYTHON=python3.12 JUPYTER_ARGS=--no-browser
#   make test PYTEST_ARGS="-k outer_add"

PYTHON ?=
TORCH ?=
JUPYTER_ARGS ?=
PYTEST_ARGS ?=
RELEASE_ARGS ?=
HANDOUT_ARGS ?=
NBGRADER_ARGS ?=
TRITON ?= 3.9.0
GRADESCOPE_ARGS ?=
REPOSITORY ?=
BRANCH ?=

unexport TRITON_INTERPRET  # the course never sets it: it would keep kernels from compiling
unexport PYTHONDONTWRITEBYTECODE  # each notebook that the tests run would compile the course anew
export PYTHON TORCH REPOSITORY BRANCH  # for .setup/

# What holds with every supported Triton.
WITH_ANOTHER := tests/test_guarded_run.py tests/test_operations.py tests/test_taint.py tests/test_races.py \
	tests/test_atomicity.py tests/test_true_size.py tests/test_bfloat16.py tests/test_arithmetic.py \
	tests/test_right_kernels.py tests/test_wrong_kernels.py tests/test_wording.py tests/test_versions.py \
	tests/test_other_triton.py

# nbval runs the notebooks in processes of their own: to the tests around them it is seconds of imports.
# No test reads a log, for which pytest would add handlers to all of torch's loggers, six times per test.
NO_PLUGINS := -p no:nbval -p no:logging

# Empty in a hand-out, which has neither.
CHECKOUT := $(and $(wildcard solutions),$(wildcard tests))

.PHONY: help venv lab tools test test-next test-with lint notebooks handout nbgrader gradescope site explorer clean

help:
	@echo "make lab        open the course in JupyterLab (TORCH=cpu for PyTorch without CUDA)"
	@echo "make venv       only set up .venv, as make lab does"
ifdef CHECKOUT
	@echo "make tools      set up .venv with the development tools"
	@echo "make test       run the tests (PYTEST_ARGS=...)"
	@echo "make test-next  compile the production kernels with the newest Triton"
	@echo "make test-with  test the checker with another Triton (TRITON=3.9.0, or newest)"
	@echo "make lint       check style with ruff, types with mypy"
	@echo "make notebooks  execute solutions/, write notebooks/ from them (RELEASE_ARGS=--check)"
	@echo "make handout    pack what a student needs into a zip (HANDOUT_ARGS=\"01 02\")"
	@echo "make nbgrader   write a source folder for nbgrader (NBGRADER_ARGS=...)"
	@echo "make gradescope write an autograder for Gradescope (GRADESCOPE_ARGS=\"--late 10%/day 01 02\")"
	@echo "make site       write the course as a website to site/ (REPOSITORY=owner/name on GitHub)"
	@echo "make explorer   bundle anew what triton-viz's page imports (needs npm)"
endif
	@echo "make clean      remove .venv and caches"

venv:
	@bash .setup/venv.sh

lab: venv
	@bash .setup/lab.sh $(JUPYTER_ARGS)

ifdef CHECKOUT

# With the development tools, which a learner does not need.
tools:
	@bash .setup/venv.sh dev

test: tools
	.venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(NO_PLUGINS) $(PYTEST_ARGS)

# In a virtual environment of its own, .venv-next: the course itself works with the pinned Triton only.
test-next:
	@bash .setup/next.sh
	.venv-next/bin/python -m pytest tests/test_kernels_compile.py tests/test_dequant_gemm_rows.py \
		tests/test_dequant_gemm_hopper.py $(PYTEST_ARGS)

# Another Triton before the pinned one, in a folder of its own. What differs is in tests/other_triton.py.
test-with: tools
	.venv/bin/python -m pip install --quiet --no-deps --upgrade --target .venv-with/$(TRITON) \
		triton$(if $(filter newest,$(TRITON)),,==$(TRITON))
	PYTHONPATH=$(CURDIR)/.venv-with/$(TRITON) .venv/bin/python -m pytest -n auto --dist loadfile $(NO_PLUGINS) \
		$(WITH_ANOTHER) $(PYTEST_ARGS)

lint: tools
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

notebooks: tools
	.venv/bin/python -m puzzles_lib.authoring.release $(RELEASE_ARGS)

handout: tools
	.venv/bin/python -m puzzles_lib.authoring.handout $(HANDOUT_ARGS)

nbgrader: tools
	.venv/bin/python -m puzzles_lib.authoring.nbgrader $(NBGRADER_ARGS)

gradescope: tools
	.venv/bin/python -m puzzles_lib.authoring.gradescope $(GRADESCOPE_ARGS)

# In a virtual environment of its own, .venv-site, without torch and Triton: it runs no notebook.
site:
	@bash .setup/site/build.sh

explorer:
	bash .setup/explorer/bundle.sh

else

test test-next test-with lint notebooks handout nbgrader gradescope site explorer:
	@echo "error: this is a hand-out of the course, without what make $@ needs: solutions/ and tests/" >&2; exit 1

endif

clean:
	@[ ! -e .venv ] || [ "$$(stat -c %u .venv)" = "$$(id -u)" ] || \
		{ echo "error: .venv is another user's: nothing is removed" >&2; exit 1; }
	rm -rf .venv .venv-next .venv-with .venv-site .screenshots .pytest_cache .ruff_cache *.egg-info build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
