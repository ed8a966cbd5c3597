#include "server/contents/load_notes.h"

void eb_load_note_add(struct eb_load_note *note, const char *name, const char *why)
{
    const struct eb_failure before = note->named;
    if (note->count == 0) {
        eb_failure_set(&note->first, "'%.64s'%s%s", name, why ? ": " : "", why ? why : "");
    }
    if (note->count++ < EB_LOAD_NOTES_NAMED_MAX) {
        eb_failure_set(&note->named, "%s%s'%.64s'%s%s", before.text,
            before.text[0] == '\0' ? "" : "; ", name, why ? ": " : "", why ? why : "");
    }
}
