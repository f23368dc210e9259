/* SPDX-License-Identifier: Apache-2.0 */
/* Values of settings: which variable gives one, and the one syntax of each kind. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/hca_list.h"
#include "common/if_list.h"
#include "common/ipv4.h"
#include "common/number.h"
#include "common/printable.h"

#define ALLOWED_MAX 128

/* A variable and its value, for messages. */
struct source {
	const struct mpib_env_row *row;
	const char *variable;
	const char *text;
	char *why;
};

static char *field_of(struct mpib_env *env, const struct mpib_env_row *row)
{
	return (char *)env + row->offset;
}

char *mpib_env_allowed(const struct mpib_env_row *row, char *buf, size_t size)
{
	switch (row->kind) {
	case MPIB_ENV_NUMBER:
		(void)snprintf(buf, size, "a number from %ld to %ld", row->min, row->max);
		break;
	case MPIB_ENV_KEY:
		(void)snprintf(buf, size, "a number from %ld to 0x%lx", row->min,
			       (unsigned long)row->max);
		break;
	case MPIB_ENV_HCAS:
		(void)snprintf(buf, size, "name[:port],name[:port] of at most %zu bytes",
			       row->size - 1);
		break;
	case MPIB_ENV_INTERFACES:
		(void)snprintf(buf, size,
			       "name,name of interfaces, =name,name for exact names, or ^name,name "
			       "for all others, of at most %zu bytes",
			       row->size - 1);
		break;
	case MPIB_ENV_FAMILY:
		(void)snprintf(buf, size, "AF_INET or AF_INET6");
		break;
	case MPIB_ENV_IPV4:
		(void)snprintf(buf, size, "an IPv4 address that a node can have");
		break;
	case MPIB_ENV_DIRECTORY:
		(void)snprintf(buf, size,
			       "a path from / on, of printable ASCII and at most %zu "
			       "bytes",
			       row->size - 1);
		break;
	}
	return buf;
}

static int refuse(const struct source *source)
{
	const struct mpib_env_row *row = source->row;
	char value[MPIB_PRINTABLE_MAX], allowed[ALLOWED_MAX];
	const bool own = strcmp(source->variable, row->name) == 0;

	(void)snprintf(source->why, MPIB_ENV_WHY_MAX, "%s=%s: must be %s (%s)%s%s%s",
		       source->variable, mpib_printable(source->text, value, sizeof(value)),
		       mpib_env_allowed(row, allowed, sizeof(allowed)), row->help,
		       own ? "" : "; correct it, or set ", own ? "" : row->name,
		       own ? "" : ", which wins over it");
	return -EINVAL;
}

static int parse_number(const struct source *source, struct mpib_env *env)
{
	const struct mpib_env_row *row = source->row;
	const size_t len = strlen(source->text);
	long value;
	int number;
	int r = row->kind == MPIB_ENV_KEY
			? mpib_number_parse_key(source->text, len, row->min, row->max, &value)
			: mpib_number_parse(source->text, len, row->min, row->max, &value);

	if (r < 0)
		return refuse(source);
	number = (int)value;
	memcpy(field_of(env, row), &number, sizeof(number));
	return 0;
}

static bool is_text_of(const struct source *source)
{
	const struct mpib_env_row *row = source->row;
	uint32_t addr_be;

	switch (row->kind) {
	case MPIB_ENV_INTERFACES:
		return mpib_if_list_valid(source->text);
	case MPIB_ENV_FAMILY:
		return strcmp(source->text, "AF_INET") == 0 ||
		       strcmp(source->text, "AF_INET6") == 0;
	case MPIB_ENV_IPV4:
		return mpib_ipv4_parse(source->text, &addr_be) == 0 && mpib_ipv4_routable(addr_be);
	case MPIB_ENV_DIRECTORY:
		return source->text[0] == '/';
	case MPIB_ENV_HCAS: /* with a message of its own */
	case MPIB_ENV_NUMBER:
	case MPIB_ENV_KEY:
		break;
	}
	return true;
}

static int parse_text(const struct source *source, struct mpib_env *env)
{
	const struct mpib_env_row *row = source->row;
	struct mpib_hca_name names[MPIB_DEVICES_MAX];
	const size_t len = strlen(source->text);

	if (len >= row->size || (len > 0 && !is_text_of(source)))
		return refuse(source);
	if (row->kind == MPIB_ENV_HCAS &&
	    mpib_hca_list_parse(row->name, source->text, names, source->why, MPIB_ENV_WHY_MAX) < 0)
		return -EINVAL;
	if (!mpib_is_printable(source->text))
		return refuse(source);
	memcpy(field_of(env, row), source->text, len + 1);
	return 0;
}

/* Own variable, NCCL's, or the default. */
static enum mpib_env_origin find_source(mpib_env_get get, const void *environment,
					struct source *source)
{
	const struct mpib_env_row *row = source->row;

	source->variable = row->name;
	source->text = get(environment, row->name);
	if (source->text && *source->text)
		return MPIB_ENV_OWN;

	source->text = row->nccl ? get(environment, row->nccl) : NULL;
	if (source->text && *source->text &&
	    !(row->nccl_unset && strcmp(source->text, row->nccl_unset) == 0)) {
		source->variable = row->nccl;
		return MPIB_ENV_NCCL;
	}

	source->text = row->default_text;
	return MPIB_ENV_DEFAULT;
}

int mpib_env_read_row(const struct mpib_env_row *row, mpib_env_get get, const void *environment,
		      struct mpib_env *env, char *ret_why)
{
	struct source source = { .row = row, .why = ret_why };
	enum mpib_env_origin origin = find_source(get, environment, &source);
	int r = row->size ? parse_text(&source, env) : parse_number(&source, env);

	if (r == 0)
		env->origin[row - mpib_env_rows] = (uint8_t)origin;
	return r;
}

char *mpib_env_format(const struct mpib_env_row *row, const struct mpib_env *env, char *buf,
		      size_t size)
{
	const char *field = (const char *)env + row->offset;
	int number;

	if (row->size) {
		(void)snprintf(buf, size, "%s", field);
		return buf;
	}
	memcpy(&number, field, sizeof(number));
	if (row->kind == MPIB_ENV_KEY && number >= 0)
		(void)snprintf(buf, size, "0x%x", (unsigned int)number);
	else
		(void)snprintf(buf, size, "%d", number);
	return buf;
}

enum mpib_env_origin mpib_env_origin_of(const struct mpib_env *env, const struct mpib_env_row *row)
{
	return (enum mpib_env_origin)env->origin[row - mpib_env_rows];
}

const char *mpib_env_variable(const struct mpib_env *env, const void *field)
{
	const size_t offset = (size_t)((const char *)field - (const char *)env);

	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];

		if (row->offset == offset)
			return mpib_env_origin_of(env, row) == MPIB_ENV_NCCL ? row->nccl
									     : row->name;
	}
	return "?";
}
