/* SPDX-License-Identifier: Apache-2.0 */
/* What the connecting end tells the accepting one of its own failures. */
#include "plugin/setup/connect_impl.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "plugin/base/log.h"

#define AFAR_WAIT_MS 250 /* for TCP, and for the listener to have read */

/* Puts the nonce, which proves that the expected peer speaks, before a text. */
static size_t proven_text(uint64_t nonce, const char *text, uint8_t payload[8 + MPIB_TEXT_MAX])
{
	size_t len = strnlen(text, MPIB_TEXT_MAX);

	for (unsigned int k = 0; k < 8; k++)
		payload[k] = (uint8_t)(nonce >> (8 * k));
	memcpy(payload + 8, text, len);
	return 8 + len;
}

void mpib_connect_fail_from_afar(const struct mpib_handle *wire, const char *text)
{
	uint8_t payload[8 + MPIB_TEXT_MAX];
	struct pollfd p = { .events = POLLOUT };
	struct mpib_ctl ctl;
	int r, fd;

	if (mpib_net_connect(&wire->addr, &fd) < 0)
		return;
	p.fd = fd;
	(void)poll(&p, 1, AFAR_WAIT_MS);
	r = mpib_net_connected(fd);
	mpib_ctl_init(&ctl, fd);
	if (r > 0)
		mpib_ctl_send_last(&ctl, MPIB_FRAME_FAIL, payload,
				   proven_text(wire->nonce, text, payload));
	/* A greeting that nobody reads would make close() cut off what was sent. */
	(void)shutdown(fd, SHUT_WR);
	p.events = POLLIN;
	while (r > 0 && poll(&p, 1, AFAR_WAIT_MS) > 0 &&
	       recv(fd, payload, sizeof(payload), MSG_DONTWAIT) > 0)
		;
	mpib_ctl_close(&ctl);
}

const char *mpib_connect_failure_text(const char *address, int error, char *text)
{
	char subject[MPIB_ADDR_TEXT_MAX + 32];

	(void)snprintf(subject, sizeof(subject), "connect to %s", address);
	(void)snprintf(text, MPIB_TEXT_MAX + 1, "the connecting side failed: %.360s",
		       mpib_log_explain(subject, error));
	return text;
}

void mpib_connect_tell_peer(struct connecting *c, uint16_t type, const char *text)
{
	uint8_t payload[8 + MPIB_TEXT_MAX];

	c->peer_knows = true;
	if (c->state != CONNECT_TCP)
		mpib_ctl_send_text(&c->comm->ctl, type, text);
	else if (c->comm->ctl.fd >= 0 && mpib_net_connected(c->comm->ctl.fd) > 0)
		mpib_ctl_send_last(&c->comm->ctl, type, payload,
				   proven_text(c->wire.nonce, text, payload));
}

bool mpib_connect_handle_differs(const struct connecting *c, char *ret_text, size_t size)
{
	const struct {
		const char *name, *cure;
		int theirs, ours;
	} rows[] = {
		{ "wire version", "install the same MPIB", c->wire.version, MPIB_WIRE_VERSION },
		{ "MPIB_MODE", "set the same", c->wire.mode, c->env.mode },
		{ "MPIB_ISLAND_PREFIX_LEN", "set the same", c->wire.prefix_len, c->env.prefix_len },
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		if (rows[k].theirs == rows[k].ours)
			continue;
		(void)snprintf(
			ret_text, size,
			"%s differs: %d on the accepting side, %d on the connecting side: %s "
			"on every node",
			rows[k].name, rows[k].theirs, rows[k].ours, rows[k].cure);
		return true;
	}
	return false;
}
