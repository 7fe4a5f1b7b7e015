# docker build -f containers/gpu.Dockerfile -t metric-oracle-gpu .
# docker run --rm --gpus all -v "$PWD:/data" metric-oracle-gpu retrieve INDEX test.csv -m bleu --backend cuda --out bleu.parquet
FROM python:3.11-slim-bookworm AS wheel
# .git is not copied: --build-arg VERSION=0.3.0 gives the wheel the version of the checkout; empty, a development one.
ARG VERSION
ENV SETUPTOOLS_SCM_PRETEND_VERSION=$VERSION
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim-bookworm
# A C compiler: Triton builds its launcher with it. CUDA's libraries come with the wheels; the driver is the host's.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ARG EXTRAS="gpu,encoders,plots,web"
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cu130 "$(ls /wheels/*.whl)[$EXTRAS]" \
    && useradd --create-home --uid 1000 oracle && mkdir /data && chown oracle /data
USER 1000
ENV NUMBA_CACHE_DIR=/home/oracle/numba HF_HUB_OFFLINE=1 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /data
ENTRYPOINT ["oracle"]
CMD ["--help"]
