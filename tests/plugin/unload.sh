#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library is unloaded, or its process ends, with anything left open. usage: unload.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_FABRIC_NODE=1
case $name in
*-with-agent)
	start_agent 1 512
	export MPIB_MODE=1 MPIB_AGENT_DIR=${agent_dir}1
	;;
esac

"$UNLOAD" "${name%-with-agent}" ${MPIB_TEST_LIVES:+"$MPIB_TEST_LIVES"} || die "it exits with $?"
