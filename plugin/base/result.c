/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/result.h"

int mpib_error_of_host(int error)
{
	return mpib_result_of(error) == ncclSystemError ? error : -EIO;
}

ncclResult_t mpib_result_of(int error)
{
	switch (-error) {
	case MPIB_EARGUMENT:
		return ncclInvalidArgument;
	case MPIB_EUSAGE:
		return ncclInvalidUsage;
	case MPIB_EINTERNAL:
		return ncclInternalError;
	case EREMOTEIO:
	case ECONNRESET:
	case ECONNREFUSED:
	case ECONNABORTED:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EPIPE:
	case EPROTO:
	case EBADMSG:
	case ETIMEDOUT:
		return ncclRemoteError;
	default:
		return ncclSystemError;
	}
}
