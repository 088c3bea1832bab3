#!/bin/sh
# One deployment of an environment at a time, whatever pipelines are running. HOLDFAST_URL and HOLDFAST_CREDENTIAL come from
# the secrets of the pipeline.
set -eu
environment=${1:-staging}

# waits at most 15 minutes; then exits with 124 and has run nothing
exec holdfast run "deploy:$environment" --wait 15m -- sh -eu -c '
  echo "deploying to $1 with token $HOLDFAST_TOKEN"
  # ./build-and-push "$1"
' deploy "$environment"
