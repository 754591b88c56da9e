# CPU:      docker build -t inbounds .
# CUDA 12:  docker build -t inbounds --build-arg EXTRAS=cuda12,export,video .    (docker run --gpus all ...)
# Train:    docker run --rm -v "$PWD/runs:/inbounds/runs" inbounds train reacher --steps 20000 --out runs/demo
FROM python:3.12-slim

# MuJoCo draws films without a screen through Mesa's EGL.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libegl1 libgl1-mesa-dri \
 && rm -rf /var/lib/apt/lists/*

ARG EXTRAS=export,video
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir "/source[${EXTRAS}]"

COPY policies /inbounds/policies
WORKDIR /inbounds
ENTRYPOINT ["inbounds"]
CMD ["list"]
