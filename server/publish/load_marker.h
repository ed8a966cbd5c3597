/* Markers of loads, so that a version that kills the process while it loads does not kill it again
 * at each start. A marker is an empty file that is made before a load. It is removed when the load
 * is over, whatever its outcome, and when the process ends in an orderly way. A marker that is
 * there at start means that the process died during that load.
 *
 * The names of the files, in STATE_DIR/embag, where STATE_DIR is the setting state_dir:
 *
 *   loading-MODEL-VERSION-FILES-K  a load is under way, and the process died in K earlier loads
 *   died-MODEL-VERSION-FILES-K     the process died in the last K loads of the version
 *
 * FILES identifies the version's files (eb_repository_stamp_files), in 16 hexadecimal digits. MODEL
 * is the model's name or, if that is long or has characters other than letters, digits and "._-",
 * "=" and a hash of the name. Files with other names are removed.
 *
 * Thread: begin and end on any, signal from a signal handler, the rest on the owner's. Memory: the
 * owner's; open until the process ends or eb_load_markers_close. */
#pragma once

#include "server/base/failure.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Most deaths that are remembered. Markers beyond that are removed at start. */
#define EB_LOAD_DEATHS_MAX 256
/* Longest name of a model that stands in a marker as it is. */
#define EB_LOAD_MARKER_MODEL_BYTES 100
/* Longest name of a marker, its NUL included. */
#define EB_LOAD_MARKER_BYTES 192
/* Most markers of loads under way. */
#define EB_LOAD_MARKERS_MAX 8
/* Largest K. Later deaths are not counted. */
#define EB_LOAD_DEATHS_COUNTED 99

/* A version that killed the process while it loaded. */
struct eb_load_death {
    char model[EB_LOAD_MARKER_MODEL_BYTES + 1]; /* as in the marker's name */
    uint64_t version;
    uint64_t files;
    unsigned count;
};

/* A load under way. */
struct eb_load_marker {
    atomic_bool is_set;
    char name[EB_LOAD_MARKER_BYTES];
    char former[EB_LOAD_MARKER_BYTES]; /* marker of the deaths that the load may end; "" if none */
};

struct eb_load_markers {
    int directory; /* -1 if there are no markers: all functions then do nothing */
    uv_mutex_t mutex;
    atomic_bool is_ended;
    bool has_died; /* the former process died in a load */
    size_t death_count;
    struct eb_load_death deaths[EB_LOAD_DEATHS_MAX];
    struct eb_load_marker markers[EB_LOAD_MARKERS_MAX];
};

/* Makes and opens the directory `embag` in `path`, and counts the deaths that its markers record.
 * If `path` is NULL, there are no markers. Returns false, with *failure set, if the directory does
 * not exist, cannot be written, or belongs to another user. */
bool eb_load_markers_open(
    struct eb_load_markers *markers, const char *path, struct eb_failure *failure);
/* Closes the directory; its files stay. */
void eb_load_markers_close(struct eb_load_markers *markers);

/* Returns whether `death` belongs to that version. */
bool eb_load_death_is_of(const struct eb_load_death *death, const char *model, uint64_t version);
/* Returns the number of versions with deaths. */
size_t eb_load_markers_count(struct eb_load_markers *markers);
/* Returns a death by its index. An index is valid until a death is forgotten; only indices above
 * that of the forgotten one change. */
struct eb_load_death eb_load_markers_death(struct eb_load_markers *markers, size_t index);
/* Forgets a death, unless a load has already done so. */
void eb_load_markers_forget(struct eb_load_markers *markers, const struct eb_load_death *death);

/* Marks that a load begins, and returns the marker for eb_load_markers_end. Deaths of the version
 * with other files are forgotten. Returns NULL if there is none: after eb_load_markers_stop, or if
 * the directory cannot be written, which is logged; the load goes on. */
struct eb_load_marker *eb_load_markers_begin(
    struct eb_load_markers *markers, const char *model, uint64_t version, uint64_t files);
/* Returns whether the process died in an earlier load of the same files. `marker` may be NULL. */
bool eb_load_marker_has_deaths(const struct eb_load_marker *marker);
/* Removes the marker of a load. If `is_over`, forgets the deaths of its version; otherwise the load
 * was cancelled, and they still count. `marker` may be NULL. */
void eb_load_markers_end(
    struct eb_load_markers *markers, struct eb_load_marker *marker, bool is_over);
/* Removes the markers of all loads under way; deaths in earlier loads still count. From now on, no
 * marker is made. */
void eb_load_markers_stop(struct eb_load_markers *markers);
/* Does what eb_load_markers_stop does, for the markers that were opened last. May be called only in
 * the handler of a signal that ends the process. A load that begins at that moment may leave its
 * marker. */
void eb_load_markers_signal(void);
