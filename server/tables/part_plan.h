/* Plans the tables of a version in parts (formats/parts_manifest.h) that a server loads: those of
 * one part or, for a router, those placed everywhere. Compares their files with the version's
 * manifest before they are loaded. Describes the other tables, which are remote for a router.
 * Thread: one at a time. Memory: the manifest is on the heap. */
#pragma once

#include "server/formats/parts_manifest.h"
#include "server/tables/planned_table.h"

/* The part that is loaded, and the manifest of its version. */
struct eb_part_plan {
    struct eb_part_choice choice; /* its `parts` is that of the manifest; its `part` is 0 for a
                                     router */
    bool is_router;
    struct eb_parts_manifest manifest;
    char *yaml;   /* text of the manifest */
    char *path;   /* of the manifest */
    char *folder; /* path of the folder with the files to load; NULL without the files */
};

/* Reads the manifest in the version's directory. Returns false with *plan empty and *failure set if
 * it is missing or not valid, or if the version is not in options->part.parts parts, unless
 * options->is_router. */
bool eb_part_plan_open(struct eb_part_plan *plan, const char *directory,
    const struct eb_table_options *options, struct eb_failure *failure);
/* Makes the plan from the text of a manifest alone, without the version's files: for versions whose
 * tables are opened from resident files. Returns false as eb_part_plan_open does. */
bool eb_part_plan_recall(struct eb_part_plan *plan, const char *yaml,
    const struct eb_table_options *options, struct eb_failure *failure);
/* Accepts a zeroed plan. */
void eb_part_plan_close(struct eb_part_plan *plan);

/* Compares the files of the scan, which is of plan->folder, with the manifest, and gives them its
 * digests. Returns false with *failure set if a file is not listed there or is another one, or if
 * one is missing that `config`, which may be NULL, does not leave out. */
bool eb_part_plan_check(const struct eb_part_plan *plan, const struct eb_model_config *config,
    struct eb_version_scan *scan, struct eb_failure *failure);

/* Sets the members of a table that depend on how it lies in parts: its placement, its part and its
 * unknown row. A divided table keeps no settings of model.yaml but its default vector. Returns
 * false with *failure set, without a path, if model.yaml names another unknown row than the
 * manifest. */
bool eb_part_plan_describe(
    const struct eb_part_plan *plan, struct eb_planned_table *table, struct eb_failure *failure);

/* Describes a remote table, whose name and config are set, from its entry in the manifest, as
 * table_plan.h describes one from its files; but does not look at the defaults of model.yaml. Its
 * digest is that of its file or, if there are several, the XXH3-64 of their digests in order of
 * parts. Returns false with *failure set, without a path, if model.yaml contradicts the manifest.
 */
bool eb_part_plan_describe_remote(const struct eb_part_plan *plan,
    const struct eb_parts_table *listed, struct eb_planned_table *table,
    struct eb_failure *failure);
