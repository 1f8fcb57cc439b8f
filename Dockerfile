# The course in a container, without the solutions and the tests:
#   docker build -t triton-bit-by-bit .
#   docker run --rm -p 127.0.0.1:8888:8888 triton-bit-by-bit    (TEACHING.md says what is kept)

# The dev container uses this stage, too.
FROM python:3.12-slim-bookworm AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --shell /bin/bash learner

FROM base
# PyTorch's small build; --build-arg TORCH= brings CUDA along.
ARG TORCH=cpu
RUN mkdir /course && chown learner /course
USER learner
WORKDIR /course
# The set-up's inputs come first, so that a changed notebook doesn't install PyTorch again.
COPY --chown=learner LICENSE Makefile README.md pyproject.toml ./
COPY --chown=learner .setup .setup
COPY --chown=learner puzzles_lib/__init__.py puzzles_lib/
RUN make venv
COPY --chown=learner . .
EXPOSE 8888
CMD ["make", "lab", "JUPYTER_ARGS=--ip=0.0.0.0 --no-browser"]
