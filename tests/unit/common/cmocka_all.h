/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka.h together with the headers that it needs first. */
#ifndef MPIB_TESTS_UNIT_COMMON_CMOCKA_ALL_H
#define MPIB_TESTS_UNIT_COMMON_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
