# syntax=docker/dockerfile:1
# The gateway, and every other command that needs no engines of its own, from the wheel:
#   pip wheel --no-deps --wheel-dir dist . && docker build --tag tts-toolkit:0.1.0 .
# Anything but wheels and the pinned versions is kept out of the build by .dockerignore.
# To pin the bytes and not only the tag: --build-arg PYTHON=3.12-slim-bookworm@sha256:<what `docker buildx imagetools inspect` prints>
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS install
COPY constraints.txt dist/*.whl /wheels/
# --only-binary: nothing is compiled, so that no compiler is needed here either
RUN python -m venv /opt/tts \
    && /opt/tts/bin/pip install --no-cache-dir --only-binary=:all: --constraint /wheels/constraints.txt \
        --find-links /wheels "tts-toolkit[otel,filters]"

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
HEALTHCHECK --interval=30s --timeout=30s --start-period=2m --retries=4 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/ready', timeout=20)"]
ENTRYPOINT ["tts"]
CMD ["gateway", "/etc/tts/deployment.yaml", "--host", "0.0.0.0", "--port", "8080"]
