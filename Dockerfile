# The image: a wheel built in one stage, installed with exact versions into an environment that the other stage copies.
# It binds all addresses; without GROUNDWIRE_KEYS or server.keys it makes a client key at start and prints it.
# A config goes to /app/config.yaml; without one the environment says where models and search are.
FROM python:3.13.11-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY proxy proxy
COPY tools tools
COPY providers providers
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist . \
 && python -m venv --without-pip /opt/groundwire \
 && pip --python /opt/groundwire install --no-cache-dir --only-binary :all: --constraint constraints.txt \
    "groundwire[litellm,tavily] @ file://$(echo /dist/*.whl)"

FROM python:3.13.11-slim-trixie
COPY --from=build /opt/groundwire /opt/groundwire
ENV PATH=/opt/groundwire/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GROUNDWIRE_GENERATE_KEY=1
WORKDIR /app
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
  CMD ["python", "-I", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["groundwire"]
# The port is named so that a mounted config cannot move it away from the health check; publish another one with -p.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
