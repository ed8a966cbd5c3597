#include "server/publish/model_log.h"

#include "server/base/log.h"

void eb_model_log_served(void *context, const char *model, uint64_t version, uint64_t before)
{
    (void)context;
    eb_log(EB_LOG_INFO, "model_serving", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_count("before", before));
}

void eb_model_log_missing(void *context, const char *model, uint64_t version, const char *label)
{
    (void)context;
    eb_log(EB_LOG_WARN, "model_version_missing", eb_log_text("model", model),
        eb_log_count("version", version),
        eb_log_text("named_by", label ? "versions.labels" : "versions.serve"),
        eb_log_text("label", label),
        eb_log_text("remedy", "rename its directory into place, or name another version in "
                              "model.yaml; what was served and labelled stays until then"));
}

void eb_model_log_changed(void *context, const char *model, uint64_t version)
{
    (void)context;
    eb_log(EB_LOG_WARN, "version_changed", eb_log_text("model", model),
        eb_log_count("version", version),
        eb_log_text("remedy", "what is loaded stays as it is; a new version wants a new number"));
}

void eb_model_log_described(void *context, const char *model, uint64_t version)
{
    (void)context;
    eb_log(EB_LOG_WARN, "model_described_anew", eb_log_text("model", model),
        eb_log_count("version", version),
        eb_log_text("reason", "model.yaml says something else of tables, features or groups; that "
                              "holds for versions that are loaded from now on"),
        eb_log_text("remedy", "publish the version under a new number: cp -al 7 .8; mv .8 8"));
}

void eb_model_log_evicted(void *context, const char *model, uint64_t version, const char *setting)
{
    (void)context;
    eb_log(EB_LOG_WARN, "version_evicted", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_text("setting", setting),
        eb_log_text("reason", "more is kept for versions.keep_s than the setting allows"),
        eb_log_text("remedy", "lower versions.keep_s in model.yaml, publish less often, or raise "
                              "the setting; callers that pinned the version get NOT_FOUND"));
}
