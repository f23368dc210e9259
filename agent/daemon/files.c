/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/daemon/files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/state/dir.h"

static void swap_fd(int *fd, int with)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = with;
}

static void tell_made(const struct mpib_files *files, struct mpib_flows *flows, const char *name)
{
	struct mpib_cause text;

	(void)mpib_cause_set(&text, 0,
			     "%s%s was deleted or replaced under the running agent: made anew",
			     files->path, name);
	mpib_journal_adopt(flows->journal, true, text.text);
}

static int check_dir(struct mpib_files *files, struct mpib_flows *flows, struct mpib_server *server,
		     struct mpib_cause *cause)
{
	int dir_fd;
	int lock_fd;
	int r;

	if (mpib_dir_is(files->path, files->dir_fd))
		return 0;

	r = mpib_dir_open(files->path, &dir_fd, cause);
	if (r < 0)
		return r;
	r = mpib_dir_lock(dir_fd, files->path, &lock_fd, cause);
	if (r < 0) {
		(void)close(dir_fd);
		return r;
	}

	/* Those who use the descriptor of before stop first. */
	mpib_server_leave_dir(server);
	if (flows->adopt)
		mpib_adopt_move(flows->adopt, dir_fd);
	mpib_shares_move_overrides(flows->shares, dir_fd);
	swap_fd(&files->lock_fd, lock_fd);
	swap_fd(&files->dir_fd, dir_fd);
	tell_made(files, flows, "");
	return 0;
}

static int check_lock(struct mpib_files *files, struct mpib_flows *flows, struct mpib_cause *cause)
{
	int lock_fd;
	int r;

	if (mpib_dir_has_lock(files->dir_fd, files->lock_fd))
		return 0;

	r = mpib_dir_lock(files->dir_fd, files->path, &lock_fd, cause);
	if (r < 0)
		return r;
	swap_fd(&files->lock_fd, lock_fd);
	tell_made(files, flows, "/lock");
	return 0;
}

static int check_hints(struct mpib_files *files, struct mpib_flows *flows, struct mpib_hints *hints,
		       struct mpib_cause *cause)
{
	int r;

	if (mpib_hints_is_current(hints, files->dir_fd))
		return 0;

	r = mpib_hints_remake(hints, files->dir_fd, cause);
	if (r < 0)
		return r;
	files->move_due = true;
	tell_made(files, flows, "/" MPIB_HINTS_NAME);
	return 0;
}

static int check_socket(struct mpib_files *files, struct mpib_flows *flows,
			struct mpib_server *server, struct mpib_cause *cause)
{
	int r;

	if (mpib_server_socket_is_current(server, files->dir_fd))
		return 0;

	r = mpib_server_listen(server, files->dir_fd, files->path, cause);
	if (r < 0)
		return r;
	tell_made(files, flows, "/" MPIB_SOCKET_NAME);
	return 0;
}

void mpib_files_check(struct mpib_files *files, struct mpib_flows *flows, struct mpib_hints *hints,
		      struct mpib_server *server)
{
	struct mpib_cause cause;
	int r;

	r = check_dir(files, flows, server, &cause);
	if (r == 0)
		r = check_lock(files, flows, &cause);
	if (r == 0)
		r = check_hints(files, flows, hints, &cause);
	if (r == 0)
		r = check_socket(files, flows, server, &cause);
	if (r == 0)
		r = mpib_shares_check_overrides(flows->shares, &cause);

	/* A client that connects again maps the table again. */
	if (files->move_due && mpib_server_socket_is_current(server, files->dir_fd)) {
		mpib_server_disconnect_all(server);
		files->move_due = false;
	}

	if (r == 0) {
		files->failure[0] = '\0';
	} else if (strcmp(files->failure, cause.text) != 0) {
		(void)snprintf(files->failure, sizeof(files->failure), "%s", cause.text);
		mpib_journal_adopt(flows->journal, true, cause.text);
	}
}

void mpib_files_close(struct mpib_files *files)
{
	swap_fd(&files->lock_fd, -1);
	swap_fd(&files->dir_fd, -1);
}
