# The course in a container, without the masters and the tests:
#   docker build -t triton-bit-by-bit .
#   docker run --rm -p 127.0.0.1:8888:8888 triton-bit-by-bit    (what is kept: see TEACHING.md)

# What the dev container stands on, too.
FROM python:3.12-slim-bookworm AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --shell /bin/bash learner

FROM base
# A mirror or the index of PyTorch's small CPU build: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
RUN mkdir /course && chown learner /course
USER learner
WORKDIR /course
# First what the set-up depends on: a changed notebook does not install PyTorch anew.
COPY --chown=learner LICENSE Makefile pyproject.toml ./
COPY --chown=learner .setup .setup
COPY --chown=learner puzzles_lib/__init__.py puzzles_lib/
RUN make venv
COPY --chown=learner . .
EXPOSE 8888
CMD ["make", "lab", "JUPYTER_ARGS=--ip=0.0.0.0 --no-browser"]
