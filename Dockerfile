# The image: a wheel built in one stage and installed with what requirements.lock lists, hash by hash, into an
# environment that the other stage copies. It runs as nobody in particular, writes to its volume alone, and takes nothing
# from PYTHON… variables (-I). It binds all addresses; without GROUNDWIRE_KEYS or server.keys it makes a client key at the
# first start, prints it once and keeps it in the volume: name that (-v groundwire:/var/lib/groundwire), or a new container
# has a new key. A config goes to /app/config.yaml; without one the environment says where models and search are.
#
# The base is named by its version. A tag can be moved, so pin what you checked by its digest, which only your registry
# can tell you: docker build --build-arg BASE=python:3.13.11-slim-trixie@sha256:… .
ARG BASE=python:3.13.11-slim-trixie
FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml requirements.lock requirements-build.lock README.md LICENSE ./
COPY proxy proxy
COPY tools tools
COPY providers providers
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement requirements-build.lock \
 && pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /dist . \
 && python -m venv --without-pip /opt/groundwire \
 && pip --python /opt/groundwire install --no-cache-dir --require-hashes --only-binary :all: --requirement requirements.lock \
 && pip --python /opt/groundwire install --no-cache-dir --no-index --no-deps /dist/*.whl

FROM ${BASE}
# Nothing is installed into a running container.
RUN pip uninstall --yes --root-user-action ignore pip \
 && install --directory --mode 700 --owner 10001 --group 10001 /var/lib/groundwire
COPY --from=build /opt/groundwire /opt/groundwire
ENV PATH=/opt/groundwire/bin:$PATH \
    HOME=/tmp \
    GROUNDWIRE_KEY_FILE=/var/lib/groundwire/client-key
WORKDIR /app
USER 10001:10001
VOLUME /var/lib/groundwire
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
  CMD ["python", "-I", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["python", "-I", "-u", "-B", "/opt/groundwire/bin/groundwire"]
# The port is named so that a mounted config cannot move it away from the health check; publish another one with -p.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
