# docker build -f containers/cpu.Dockerfile -t metric-oracle .
# docker run --rm -v "$PWD:/data" metric-oracle retrieve INDEX test.csv -m bleu --out bleu.parquet
FROM python:3.11-slim-bookworm AS wheel
# .git is not copied: --build-arg VERSION=0.3.0 gives the wheel the version of the checkout; empty, a development one.
ARG VERSION
ENV SETUPTOOLS_SCM_PRETEND_VERSION=$VERSION
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim-bookworm
# "" for the core; "encoders" adds BERTScore, CheXbert, RadGraph and RadCliQ, with PyTorch for CPUs.
ARG EXTRAS="cpu,plots,web"
COPY --from=wheel /wheels /wheels
RUN case ",$EXTRAS," in *,encoders,*) pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch;; esac \
    && pip install --no-cache-dir "$(ls /wheels/*.whl)${EXTRAS:+[$EXTRAS]}" \
    && useradd --create-home --uid 1000 oracle && mkdir /data && chown oracle /data
USER 1000
# Compiled once, kept for as long as the container or a volume on this folder.
ENV NUMBA_CACHE_DIR=/home/oracle/numba HF_HUB_OFFLINE=1
WORKDIR /data
ENTRYPOINT ["oracle"]
CMD ["--help"]
