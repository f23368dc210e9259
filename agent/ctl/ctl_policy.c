/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl policy: what is in force in the agent, which may differ from what the file says by now.
 */
#include <errno.h>
#include <stdlib.h>

#include "agent/ctl/ctl.h"
#include "common/cleanup.h"

static void on_text(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_text *piece = record;

	if (piece->len <= sizeof(piece->text))
		(void)fwrite(piece->text, 1, piece->len, ctl->memory);
}

enum mpib_ctl_exit mpib_ctl_policy(struct mpib_ctl *ctl)
{
	mpib_cleanup(mpib_freep) char *text = NULL;
	struct mpib_admin_text record;
	enum mpib_ctl_exit code;
	size_t len = 0;

	ctl->memory = open_memstream(&text, &len);
	if (!ctl->memory)
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");
	code = mpib_ctl_ask(ctl, MPIB_ADMIN_POLICY, NULL, &record, sizeof(record), on_text,
			    MPIB_CTL_SECONDS);
	if (fclose(ctl->memory) && code == MPIB_CTL_OK)
		code = mpib_ctl_fail(ctl, -ENOMEM, "memory");
	if (code != MPIB_CTL_OK)
		return code;

	mpib_output_whole(ctl->output, "effective", text);
	return MPIB_CTL_OK;
}
