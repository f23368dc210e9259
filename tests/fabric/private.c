/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of the library's face: what providers (which perftest links) and rarely used verbs
 * resolve at load time. Nothing here can be reached with a device of the fabric; each says politely
 * that it isn't supported. The file doesn't see the true declarations, so that one shape fits all.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define FAB_EXPORT __attribute__((visibility("default")))

/* Calls that report a positive or negative errno; their arguments don't matter. */
#define REFUSE_INT(name)                                                                           \
	int name(void);                                                                            \
	FAB_EXPORT int name(void)                                                                  \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}
/* Calls that return an object. */
#define REFUSE_PTR(name)                                                                           \
	void *name(void);                                                                          \
	FAB_EXPORT void *name(void)                                                                \
	{                                                                                          \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	}
/* Calls that return nothing and leave nothing undone here. */
#define IGNORE(name)                                                                               \
	void name(void);                                                                           \
	FAB_EXPORT void name(void)                                                                 \
	{                                                                                          \
	}

REFUSE_INT(__ioctl_final_num_attrs)
IGNORE(__verbs_log)
REFUSE_PTR(_verbs_init_and_alloc_context)
REFUSE_INT(execute_ioctl)
REFUSE_INT(ibv_cmd_advise_mr)
REFUSE_INT(ibv_cmd_alloc_dm)
REFUSE_INT(ibv_cmd_alloc_mw)
REFUSE_INT(ibv_cmd_alloc_pd)
REFUSE_INT(ibv_cmd_attach_mcast)
REFUSE_INT(ibv_cmd_close_xrcd)
REFUSE_INT(ibv_cmd_create_ah)
REFUSE_INT(ibv_cmd_create_counters)
REFUSE_INT(ibv_cmd_create_cq)
REFUSE_INT(ibv_cmd_create_cq_ex)
REFUSE_INT(ibv_cmd_create_flow)
REFUSE_INT(ibv_cmd_create_flow_action_esp)
REFUSE_INT(ibv_cmd_create_qp)
REFUSE_INT(ibv_cmd_create_qp_ex)
REFUSE_INT(ibv_cmd_create_qp_ex2)
REFUSE_INT(ibv_cmd_create_rwq_ind_table)
REFUSE_INT(ibv_cmd_create_srq)
REFUSE_INT(ibv_cmd_create_srq_ex)
REFUSE_INT(ibv_cmd_create_wq)
REFUSE_INT(ibv_cmd_dealloc_mw)
REFUSE_INT(ibv_cmd_dealloc_pd)
REFUSE_INT(ibv_cmd_dereg_mr)
REFUSE_INT(ibv_cmd_destroy_ah)
REFUSE_INT(ibv_cmd_destroy_counters)
REFUSE_INT(ibv_cmd_destroy_cq)
REFUSE_INT(ibv_cmd_destroy_flow)
REFUSE_INT(ibv_cmd_destroy_flow_action)
REFUSE_INT(ibv_cmd_destroy_qp)
REFUSE_INT(ibv_cmd_destroy_rwq_ind_table)
REFUSE_INT(ibv_cmd_destroy_srq)
REFUSE_INT(ibv_cmd_destroy_wq)
REFUSE_INT(ibv_cmd_detach_mcast)
REFUSE_INT(ibv_cmd_free_dm)
REFUSE_INT(ibv_cmd_get_context)
REFUSE_INT(ibv_cmd_modify_cq)
REFUSE_INT(ibv_cmd_modify_flow_action_esp)
REFUSE_INT(ibv_cmd_modify_qp)
REFUSE_INT(ibv_cmd_modify_qp_ex)
REFUSE_INT(ibv_cmd_modify_srq)
REFUSE_INT(ibv_cmd_modify_wq)
REFUSE_INT(ibv_cmd_open_qp)
REFUSE_INT(ibv_cmd_open_xrcd)
REFUSE_INT(ibv_cmd_poll_cq)
REFUSE_INT(ibv_cmd_post_recv)
REFUSE_INT(ibv_cmd_post_send)
REFUSE_INT(ibv_cmd_post_srq_recv)
REFUSE_INT(ibv_cmd_query_context)
REFUSE_INT(ibv_cmd_query_device_any)
REFUSE_INT(ibv_cmd_query_mr)
REFUSE_INT(ibv_cmd_query_port)
REFUSE_INT(ibv_cmd_query_qp)
REFUSE_INT(ibv_cmd_query_srq)
REFUSE_INT(ibv_cmd_read_counters)
REFUSE_INT(ibv_cmd_reg_dm_mr)
REFUSE_INT(ibv_cmd_reg_dmabuf_mr)
REFUSE_INT(ibv_cmd_reg_mr)
REFUSE_INT(ibv_cmd_req_notify_cq)
REFUSE_INT(ibv_cmd_rereg_mr)
REFUSE_INT(ibv_cmd_resize_cq)
REFUSE_INT(ibv_read_ibdev_sysfs_file)
IGNORE(verbs_init_cq)
REFUSE_PTR(verbs_open_device)
IGNORE(verbs_register_driver_34)
IGNORE(verbs_set_ops)
IGNORE(verbs_uninit_context)

REFUSE_PTR(ibv_import_device)
REFUSE_PTR(ibv_import_dm)
REFUSE_PTR(ibv_import_mr)
REFUSE_PTR(ibv_import_pd)
IGNORE(ibv_unimport_dm)
IGNORE(ibv_unimport_mr)
IGNORE(ibv_unimport_pd)
IGNORE(ibv_copy_ah_attr_from_kern)
IGNORE(ibv_copy_path_rec_from_kern)
IGNORE(ibv_copy_path_rec_to_kern)
IGNORE(ibv_copy_qp_attr_from_kern)
IGNORE(ibv_register_driver)

extern bool verbs_allow_disassociate_destroy;
FAB_EXPORT bool verbs_allow_disassociate_destroy;
