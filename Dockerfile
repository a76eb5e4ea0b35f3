# syntax=docker/dockerfile:1
# The gateway, and every other command that needs no engines of its own, from the wheel:
#   pip wheel --no-deps --wheel-dir dist . && docker build --tag tts-toolkit:0.2.0 .
# Anything but wheels and the pinned versions is kept out of the build by .dockerignore.
# The base is pinned by its tag, which can move: no registry was at hand to look its digest up. To pin
# its bytes: --build-arg PYTHON=3.12-slim-bookworm@sha256:<digest that `docker buildx imagetools inspect
# python:3.12-slim-bookworm` prints>, or write the digest below.
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS install
COPY requirements*.lock dist/*.whl /wheels/
WORKDIR /wheels
# --only-binary: nothing is compiled, so that no compiler is needed here either. What pip took from
# the network is installed only if its hash is locked; tts itself is what was copied.
RUN python -m venv /opt/tts \
    && sed -n '/==/s/ *\\$//p' requirements*.lock >constraints.txt \
    && /opt/tts/bin/pip download --no-cache-dir --only-binary=:all: --constraint constraints.txt \
        --find-links . --dest downloaded "tts-toolkit[otel,filters]" \
    && sha256sum tts_toolkit-*.whl | sed "s/^/sha256:/" >>requirements.lock \
    && for wheel in downloaded/*; do \
        grep -q "sha256:$(sha256sum "$wheel" | cut -c 1-64)" requirements*.lock \
            || { echo "no lock file has the hash of $wheel" >&2; exit 1; }; \
    done \
    && /opt/tts/bin/pip install --no-index --no-cache-dir --only-binary=:all: --find-links downloaded \
        "tts-toolkit[otel,filters]"

FROM python:${PYTHON}
RUN groupadd --gid 10001 tts \
    && useradd --uid 10001 --gid tts --no-create-home --shell /usr/sbin/nologin tts \
    && install --directory --owner=tts --group=tts --mode=0700 /var/lib/tts
COPY --from=install /opt/tts /opt/tts
ENV PATH=/opt/tts/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TTS_HOME=/var/lib/tts
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# By HTTPS where it has a certificate, which is for another name than this one.
HEALTHCHECK --interval=30s --timeout=30s --start-period=2m --retries=4 \
    CMD ["python", "-c", "import http.client as h, ssl, urllib.request as r\nat = 'http://127.0.0.1:8080/ready'\ntry: r.urlopen(at, timeout=14)\nexcept (OSError, h.HTTPException): r.urlopen(at.replace('http', 'https'), timeout=14, context=ssl._create_unverified_context())"]
ENTRYPOINT ["tts"]
CMD ["gateway", "/etc/tts/deployment.yaml", "--host", "0.0.0.0", "--port", "8080"]
