/* Replays a corpus through a fuzz target without libFuzzer: runs every file of the directories on
 * the command line once. Fails if a directory is missing or has no file. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    uint8_t *bytes = NULL;
    size_t size = 0;
    for (;;) {
        uint8_t *grown = realloc(bytes, size + 65536);
        if (!grown) {
            perror(path);
            exit(1);
        }
        bytes = grown;
        size_t got = fread(bytes + size, 1, 65536, file);
        size += got;
        if (got < 65536) {
            break;
        }
    }
    fclose(file);
    /* An exact copy, so that a sanitizer sees a read past the end. */
    uint8_t *exact = realloc(bytes, size ? size : 1);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

static long replay_directory(const char *directory)
{
    DIR *entries = opendir(directory);
    if (!entries) {
        perror(directory);
        return -1;
    }
    long count = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] == '.' || length >= (int)sizeof path) {
            continue;
        }
        if (replay_file(path) != 0) {
            count = -1;
            break;
        }
        count++;
    }
    closedir(entries);
    return count;
}

int main(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++) {
        long count = replay_directory(arguments[i]);
        if (count <= 0) {
            fprintf(stderr, "%s: no input was replayed\n", arguments[i]);
            return 1;
        }
        printf("%s: %ld inputs replayed\n", arguments[i], count);
    }
    return argument_count > 1 ? 0 : 1;
}
