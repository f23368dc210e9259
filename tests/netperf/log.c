/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock; /* output and errors */
	int level;	      /* set before any thread */
	bool json;
	unsigned int errors;
	char text[NP_ERRORS_KEPT][NP_ERROR_TEXT];
	char plugin_warning[NP_ERROR_TEXT]; /* the latest of the run */
} logs = { .lock = PTHREAD_MUTEX_INITIALIZER, .level = NCCL_LOG_WARN };

void np_log_init(const char *level, bool json)
{
	logs.level = NCCL_LOG_WARN;
	if (!strcmp(level, "info"))
		logs.level = NCCL_LOG_INFO;
	if (!strcmp(level, "trace"))
		logs.level = NCCL_LOG_TRACE;
	logs.json = json;
}

bool np_log_json(void)
{
	return logs.json;
}

static np_format(1, 0) void keep_warning(const char *fmt, va_list args)
{
	(void)pthread_mutex_lock(&logs.lock);
	(void)vsnprintf(logs.plugin_warning, sizeof(logs.plugin_warning), fmt, args);
	(void)pthread_mutex_unlock(&logs.lock);
}

static np_format(2, 0) void put_line(const char *word, const char *fmt, va_list args)
{
	char text[1024];

	(void)vsnprintf(text, sizeof(text), fmt, args);
	(void)pthread_mutex_lock(&logs.lock);
	(void)fprintf(stderr, "mpib-netperf[%d] %s %s\n", (int)getpid(), word, text);
	(void)pthread_mutex_unlock(&logs.lock);
}

void np_log_plugin(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static const char *const words[] = { "NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE" };
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	if (level == NCCL_LOG_WARN) {
		va_start(args, fmt);
		keep_warning(fmt, args);
		va_end(args);
	}
	if (level > logs.level || level < NCCL_LOG_VERSION)
		return;
	va_start(args, fmt);
	put_line(words[level], fmt, args);
	va_end(args);
}

void np_warn(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	put_line("WARN driver:", fmt, args);
	va_end(args);
}

void np_info(const char *fmt, ...)
{
	va_list args;

	if (logs.level < NCCL_LOG_INFO)
		return;
	va_start(args, fmt);
	put_line("INFO driver:", fmt, args);
	va_end(args);
}

void np_say(const char *fmt, ...)
{
	va_list args;

	if (logs.json)
		return;
	va_start(args, fmt);
	(void)pthread_mutex_lock(&logs.lock);
	(void)vprintf(fmt, args);
	(void)putchar('\n');
	(void)fflush(stdout);
	(void)pthread_mutex_unlock(&logs.lock);
	va_end(args);
}

void np_error(const char *fmt, ...)
{
	char text[NP_ERROR_TEXT];
	unsigned int nth;
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);

	(void)pthread_mutex_lock(&logs.lock);
	nth = logs.errors++;
	if (nth < NP_ERRORS_KEPT) {
		memcpy(logs.text[nth], text, sizeof(text));
		(void)fprintf(stderr, "mpib-netperf[%d] ERROR %s\n", (int)getpid(), text);
	}
	(void)pthread_mutex_unlock(&logs.lock);
}

unsigned int np_error_count(void)
{
	unsigned int count;

	(void)pthread_mutex_lock(&logs.lock);
	count = logs.errors;
	(void)pthread_mutex_unlock(&logs.lock);
	return count;
}

void np_error_reason(char *buf, size_t len)
{
	(void)pthread_mutex_lock(&logs.lock);
	(void)snprintf(buf, len, "%s%s%s", logs.errors ? logs.text[0] : "",
		       logs.errors && *logs.plugin_warning ? "; its plugin: " : "",
		       logs.errors ? logs.plugin_warning : "");
	(void)pthread_mutex_unlock(&logs.lock);
}

void np_error_reset(void)
{
	(void)pthread_mutex_lock(&logs.lock);
	logs.errors = 0;
	logs.plugin_warning[0] = '\0';
	(void)pthread_mutex_unlock(&logs.lock);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_string(FILE *out, const char *text)
{
	(void)fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			(void)fprintf(out, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			(void)fprintf(out, "\\u%04x", c);
		else
			(void)fputc(c, out);
	}
	(void)fputc('"', out);
}

static void put_key(struct np_json *json, const char *key)
{
	if (json->comma)
		(void)fputc(',', json->out);
	json->comma = true;
	if (key)
		(void)fprintf(json->out, "\"%s\":", key);
}

void np_json_begin(struct np_json *json, const char *event)
{
	*json = (struct np_json){ 0 };
	json->out = open_memstream(&json->text, &json->len);
	if (!json->out)
		abort();
	(void)fputc('{', json->out);
	np_json_str(json, "event", event);
}

void np_json_str(struct np_json *json, const char *key, const char *value)
{
	put_key(json, key);
	if (value)
		put_string(json->out, value);
	else
		(void)fputs("null", json->out);
}

void np_json_u64(struct np_json *json, const char *key, uint64_t value)
{
	put_key(json, key);
	(void)fprintf(json->out, "%llu", (unsigned long long)value);
}

void np_json_num(struct np_json *json, const char *key, double value, int decimals)
{
	put_key(json, key);
	(void)fprintf(json->out, "%.*f", decimals, value);
}

void np_json_bool(struct np_json *json, const char *key, bool value)
{
	put_key(json, key);
	(void)fputs(value ? "true" : "false", json->out);
}

void np_json_open(struct np_json *json, const char *key, char bracket)
{
	put_key(json, key);
	(void)fputc(bracket, json->out);
	json->comma = false;
}

void np_json_close(struct np_json *json, char bracket)
{
	(void)fputc(bracket, json->out);
	json->comma = true;
}

void np_json_raw(struct np_json *json, const char *key, const char *inside)
{
	put_key(json, key);
	(void)fprintf(json->out, "[%s]", inside);
}

void np_json_errors(struct np_json *json, const char *key)
{
	np_json_open(json, key, '[');
	(void)pthread_mutex_lock(&logs.lock);
	for (unsigned int n = 0; n < logs.errors && n < NP_ERRORS_KEPT; n++)
		np_json_str(json, NULL, logs.text[n]);
	(void)pthread_mutex_unlock(&logs.lock);
	np_json_close(json, ']');
}

void np_json_end(struct np_json *json)
{
	(void)fputs("}\n", json->out);
	(void)fclose(json->out);
	if (logs.json) {
		(void)pthread_mutex_lock(&logs.lock);
		(void)fputs(json->text, stdout);
		(void)fflush(stdout);
		(void)pthread_mutex_unlock(&logs.lock);
	}
	free(json->text);
}
