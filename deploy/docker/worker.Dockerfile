# docker build -f deploy/docker/worker.Dockerfile -t ureplicator-worker .
ARG PYTHON_IMAGE=python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY deploy/docker/role_lock.py ./
RUN python -m venv /opt/ureplicator
ENV PATH=/opt/ureplicator/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Only what the role needs, in the versions and with the hashes of the lock; build tools too.
RUN printf '{"install": [%s]}' "$(for name in setuptools wheel packaging hatchling editables pathspec pluggy trove-classifiers; do \
      printf '%s{"metadata": {"name": "%s"}}' "$comma" "$name"; comma=,; done)" > tools.json \
 && python role_lock.py part requirements.lock tools.json > tools.lock \
 && pip install --require-hashes --no-deps -r tools.lock \
 && python role_lock.py wanted pyproject.toml worker > wanted.txt \
 && python role_lock.py versions requirements.lock > versions.txt \
 && pip install --dry-run --ignore-installed --no-build-isolation --report report.json -c versions.txt -r wanted.txt \
 && python role_lock.py part requirements.lock report.json > role.lock \
 && pip install --require-hashes --no-deps --no-build-isolation -r role.lock
COPY cli cli
COPY common common
COPY controller controller
COPY worker worker
RUN pip install --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin ureplicator
COPY --from=build /opt/ureplicator /opt/ureplicator
ENV PATH=/opt/ureplicator/bin:$PATH PYTHONUNBUFFERED=1 HOME=/tmp
# Spark's classes as this Java maps them: workers start at half the cost.
RUN python -m ureplicator_worker.engines.class_archive
USER 10001:10001
ENTRYPOINT ["ureplicator"]
CMD ["worker", "/etc/ureplicator/config.yaml"]
