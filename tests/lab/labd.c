/* SPDX-License-Identifier: Apache-2.0 */
/*
 * labd: runs commands in a lab node for labx, each in a process of its own, many at a time. It
 * serves whoever reaches the management NIC, so it belongs in a throw-away machine only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lab/frame.h"

enum {
	WATCH_CONN,
	WATCH_OUT,
	WATCH_ERR,
	WATCH_CHILD,
	WATCH_MAX,
};

struct command {
	pid_t pid; /* also its process group */
	int pidfd;
	int in; /* -1 once closed */
	int out;
	int err;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void run_child(char *line, int in, int out, int err)
{
	char *argv[] = { (char *)"bash", (char *)"-c", line, NULL };

	setsid();
	signal(SIGPIPE, SIG_DFL);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	execv("/bin/bash", argv);
	_exit(127);
}

static int command_start(char *line, struct command *ret_cmd)
{
	int in[2];
	int out[2];
	int err[2];
	pid_t pid;

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		return -errno;

	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		run_child(line, in[0], out[1], err[1]);

	close(in[0]);
	close(out[1]);
	close(err[1]);
	*ret_cmd = (struct command){ .pid = pid, .in = in[1], .out = out[0], .err = err[0] };
	ret_cmd->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return ret_cmd->pidfd < 0 ? -errno : 0;
}

/* Passes on what the pipe holds now; closes it at its end. Negative where the client is gone. */
static int forward(int conn, int *fd, uint8_t type)
{
	static char buf[MPIB_LAB_FRAME_MAX];
	ssize_t n = read(*fd, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n <= 0) {
		close_fd(fd);
		return 0;
	}

	return mpib_lab_frame_send(conn, type, buf, (size_t)n);
}

static int take_input(int conn, struct command *cmd)
{
	static struct mpib_lab_frame frame;
	int r = mpib_lab_frame_recv(conn, &frame);

	if (r <= 0)
		return r < 0 ? r : -ENOTCONN;
	if (frame.type != MPIB_LAB_INPUT || cmd->in < 0)
		return 0;
	/* A command that does not read its input is no error of the client's. */
	if (frame.len == 0 || mpib_lab_write_full(cmd->in, frame.data, frame.len) < 0)
		close_fd(&cmd->in);

	return 0;
}

/* Moves bytes until the command has ended; 0, or negative where the client went away. */
static int command_serve(int conn, struct command *cmd)
{
	struct pollfd fds[WATCH_MAX];
	int r;

	for (;;) {
		fds[WATCH_CONN] = (struct pollfd){ .fd = conn, .events = POLLIN };
		fds[WATCH_OUT] = (struct pollfd){ .fd = cmd->out, .events = POLLIN };
		fds[WATCH_ERR] = (struct pollfd){ .fd = cmd->err, .events = POLLIN };
		fds[WATCH_CHILD] = (struct pollfd){ .fd = cmd->pidfd, .events = POLLIN };
		if (poll(fds, WATCH_MAX, -1) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}

		r = 0;
		if (fds[WATCH_OUT].revents)
			r = forward(conn, &cmd->out, MPIB_LAB_OUTPUT);
		if (r == 0 && fds[WATCH_ERR].revents)
			r = forward(conn, &cmd->err, MPIB_LAB_ERROR);
		if (r == 0 && fds[WATCH_CONN].revents)
			r = take_input(conn, cmd);
		if (r < 0)
			return r;
		if (fds[WATCH_CHILD].revents)
			return 0;
	}
}

/* What the command left in its pipes. A descendant may hold them open: wait for no more of it. */
static void command_drain(int conn, struct command *cmd)
{
	fcntl(cmd->out, F_SETFL, O_NONBLOCK);
	fcntl(cmd->err, F_SETFL, O_NONBLOCK);
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = cmd->out, .events = POLLIN },
			{ .fd = cmd->err, .events = POLLIN },
		};

		if (poll(fds, 2, 0) <= 0)
			return;
		if (fds[0].revents && forward(conn, &cmd->out, MPIB_LAB_OUTPUT) < 0)
			return;
		if (fds[1].revents && forward(conn, &cmd->err, MPIB_LAB_ERROR) < 0)
			return;
	}
}

static void command_kill(const struct command *cmd)
{
	struct pollfd child = { .fd = cmd->pidfd, .events = POLLIN };

	kill(-cmd->pid, SIGTERM);
	if (poll(&child, 1, 2000) <= 0)
		kill(-cmd->pid, SIGKILL);
}

static void serve(int conn)
{
	static struct mpib_lab_frame frame;
	struct command cmd = { .pid = -1, .in = -1, .out = -1, .err = -1, .pidfd = -1 };
	uint8_t code;
	int status;
	int r;

	if (mpib_lab_frame_recv(conn, &frame) <= 0 || frame.type != MPIB_LAB_RUN ||
	    frame.len >= MPIB_LAB_FRAME_MAX)
		return;
	frame.data[frame.len] = '\0';
	if (command_start(frame.data, &cmd) < 0)
		return;

	r = command_serve(conn, &cmd);
	if (r < 0) {
		fprintf(stderr, "labd: client gone (%s), ending: %.80s\n", strerror(-r),
			frame.data);
		command_kill(&cmd);
	}
	command_drain(conn, &cmd);
	if (waitpid(cmd.pid, &status, 0) < 0)
		return;

	code = (uint8_t)(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	(void)mpib_lab_frame_send(conn, MPIB_LAB_STATUS, &code, sizeof(code));
}

static int listen_any(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(MPIB_LAB_PORT),
		.sin_addr.s_addr = htonl(INADDR_ANY),
	};
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 64) < 0)
		return -errno;

	return fd;
}

int main(void)
{
	int one = 1;
	int fd = listen_any();

	if (fd < 0) {
		fprintf(stderr, "labd: listen: %s\n", strerror(-fd));
		return EXIT_FAILURE;
	}
	signal(SIGPIPE, SIG_IGN);

	for (;;) {
		int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (conn < 0)
			continue;
		setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (fork() == 0) {
			close(fd);
			serve(conn);
			_exit(EXIT_SUCCESS);
		}
		close(conn);
	}
}
