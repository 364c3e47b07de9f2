# accord on a CPU. Linted, never built.
#
#   docker build --tag accord .
#   docker run --rm --volume accord:/home/accord accord demo      # the volume keeps data sets and runs
#
# The usual torch for Linux brings CUDA's libraries, some gigabytes that a CPU has no use for. To do without, name an index of
# CPU builds, as PyTorch's installation page gives it:
#
#   docker build --build-arg PIP_ARGS="--extra-index-url ADDRESS" --tag accord .
FROM python:3.12-slim

ARG PIP_ARGS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --create-home --uid 1000 accord
WORKDIR /opt/accord

# torch alone first: a change of accord's sources does not install it again. PIP_ARGS is split into words on purpose.
COPY constraints.txt ./
# hadolint ignore=SC2086
RUN pip install ${PIP_ARGS} --constraint constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
# hadolint ignore=SC2086
RUN pip install ${PIP_ARGS} --constraint constraints.txt '.[plot,images]'

USER 1000
WORKDIR /home/accord
ENTRYPOINT ["accord"]
CMD ["demo"]
