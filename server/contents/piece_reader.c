#include "server/contents/piece_reader.h"

#include <errno.h>

static bool check_same(const struct eb_piece_reader *reader, const struct eb_table_file *stamp,
    struct eb_failure *failure)
{
    if (eb_table_file_is_same(&reader->file, stamp)) {
        return true;
    }
    eb_failure_set(failure,
        "the file has changed since the load began; write versions elsewhere and rename them into "
        "place");
    return eb_failure_blame(failure, ESTALE);
}

bool eb_piece_reader_open(struct eb_piece_reader *reader, const struct eb_version_scan *scan,
    const struct eb_piece *piece, struct eb_failure *failure)
{
    const struct eb_scanned_file *file = &scan->files[piece->file];
    *reader = (struct eb_piece_reader){.path = file->path, .is_packed = piece->packed};
    if (!eb_table_file_open(file->path, &reader->file, failure)) {
        return eb_failure_locate(failure, file->path);
    }
    if (!check_same(reader, &file->stamp, failure) ||
        (reader->is_packed && !eb_packed_reader_open(&reader->packed, &reader->file, failure))) {
        eb_table_file_close(&reader->file);
        return eb_failure_locate(failure, file->path);
    }
    return true;
}

void eb_piece_reader_close(struct eb_piece_reader *reader)
{
    eb_packed_reader_close(&reader->packed);
    eb_table_file_close(&reader->file);
}

bool eb_piece_reader_read(struct eb_piece_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure)
{
    bool is_good = reader->is_packed
                       ? eb_packed_reader_read(&reader->packed, offset, out, bytes, failure)
                       : eb_table_file_read(&reader->file, offset, out, bytes, failure);
    return is_good || eb_failure_locate(failure, reader->path);
}
