# The light service: it encodes, searches and serves, and has no torch in it.
#
#     docker build -t dmuh .
#     docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 -e DMUH_TOKEN \
#       -v "$PWD/model:/model:ro" -v "$PWD/photos:/photos:ro" -v dmuh-state:/state dmuh /model --images /photos --state /state
#
# Give an image by its digest to have the very same base again: --build-arg PYTHON=python@sha256:…
ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS built
WORKDIR /source
RUN python -m venv /opt/dmuh
COPY lock/serve.txt lock/
RUN /opt/dmuh/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r lock/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/dmuh/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation . \
 && /opt/dmuh/bin/pip check \
 && /opt/dmuh/bin/pip uninstall --yes setuptools pip

FROM ${PYTHON}
COPY --from=built /opt/dmuh /opt/dmuh
# A new volume at /state takes the owner of this folder.
RUN mkdir /state && chown 10001:10001 /state
ENV PATH=/opt/dmuh/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
# At the first start all images are encoded before requests are answered; a health check without a proxy, and without curl.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10m CMD ["python", "-c", "import http.client; asked = http.client.HTTPConnection('127.0.0.1', 8000, timeout=5); asked.request('GET', '/healthz'); raise SystemExit(asked.getresponse().status != 200)"]
# Others than this container reach 0.0.0.0, so the service wants a token: DMUH_TOKEN.
ENTRYPOINT ["dmuh", "serve", "--host", "0.0.0.0"]
