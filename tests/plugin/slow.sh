#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail is lost and comes back while verbs on its device take long. usage: slow.sh make|modify|close
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_FABRIC_NODE=1 MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=3
export MPIB_SOUT_QP=1 MPIB_SUP_QP=1
# an attempt that fails for want of a processor is followed by the next one soon
export MPIB_RAIL_PAUSE_MIN_MS=200 MPIB_RAIL_PAUSE_MAX_MS=1000
share=512
[ "$name" != modify ] || share=0 # what SUP has under way waits for its queue pairs, whatever takes them to ERR
start_agent 1 $share
export MPIB_AGENT_DIR=${agent_dir}1
[ "$name" != close ] || export ASAN_OPTIONS=detect_leaks=0 # of the children
"$DRIVER" "slow-$name" || die "the driver exits with $?"
