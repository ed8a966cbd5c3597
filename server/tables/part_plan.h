/* Plans the tables of one part of a version in parts (formats/parts_manifest.h): compares the files
 * in the part's folder with the version's manifest before they are loaded.
 * Thread: one at a time. Memory: the manifest is on the heap. */
#pragma once

#include "server/formats/parts_manifest.h"
#include "server/tables/planned_table.h"

/* The part that is loaded, and the manifest of its version. */
struct eb_part_plan {
    struct eb_part_choice choice;
    struct eb_parts_manifest manifest;
    char *folder; /* path of the part's folder */
};

/* Reads the manifest in the version's directory. Returns false with *plan empty and *failure set if
 * it is not valid or if the version is not in choice.parts parts. */
bool eb_part_plan_open(struct eb_part_plan *plan, const char *directory,
    struct eb_part_choice choice, struct eb_failure *failure);
/* Accepts a zeroed plan. */
void eb_part_plan_close(struct eb_part_plan *plan);

/* Compares the files of the scan, which is of the part's folder, with the manifest, and gives them
 * its digests. Returns false with *failure set if a file is missing, is not listed there, or is
 * another one. */
bool eb_part_plan_check(
    const struct eb_part_plan *plan, struct eb_version_scan *scan, struct eb_failure *failure);

/* Sets the members of a table that depend on how it lies in parts: its part and its unknown row. A
 * divided table keeps no settings of model.yaml but its default vector. Returns false with *failure
 * set, without a path, if model.yaml names another unknown row than the manifest. */
bool eb_part_plan_describe(
    const struct eb_part_plan *plan, struct eb_planned_table *table, struct eb_failure *failure);
