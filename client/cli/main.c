#include "client/cli/commands.h"
#include "server/base/standard_files.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: embag COMMAND [OPTION]...\n"
    "The command-line tool of embag, a server for embedding tables.\n"
    "\n"
    "  lookup       look up bags of rows and print the pooled rows\n"
    "  models       list a server's models and tables; load, unload and serve versions\n"
    "  publish      serve a version on several servers when all have it in memory\n"
    "  settings     list a server's settings, or reload them\n"
    "  pack         convert a table to a packed table, quantised or unchanged\n"
    "  split        divide a version among part servers\n"
    "  check        check table files, and print the memory that they need\n"
    "  manifest     write or check the list of a version's files\n"
    "  resident     list, check or delete the tables that a server keeps in memory\n"
    "  make-model   write a workload's model into a model repository\n"
    "  demo         look up the specification's examples, or time lookups\n"
    "\n"
    "embag COMMAND --help describes a command; embag --version prints the version.\n";

static const struct {
    const char *name;
    int (*main)(int argument_count, char **arguments);
} commands[] = {
    {"lookup", eb_lookup_command_main},
    {"models", eb_models_command_main},
    {"publish", eb_publish_command_main},
    {"settings", eb_settings_command_main},
    {"pack", eb_pack_command_main},
    {"split", eb_split_command_main},
    {"check", eb_check_command_main},
    {"manifest", eb_manifest_command_main},
    {"resident", eb_resident_command_main},
    {"make-model", eb_make_model_main},
    {"demo", eb_demo_main},
};

static int dispatch_command(int argument_count, char **arguments)
{
    if (argument_count < 2) {
        fputs(usage, stderr);
        return 2;
    }
    const char *name = arguments[1];
    if (strcmp(name, "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        puts("embag " EMBAG_VERSION);
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].main(argument_count - 1, arguments + 1);
        }
    }
    fprintf(stderr,
        "embag: unknown command \"%s\": expected lookup, models, publish, settings, pack, split, "
        "check, manifest, resident, make-model or demo\n",
        name);
    return 2;
}

int main(int argument_count, char **arguments)
{
    if (!eb_standard_files_open()) {
        perror("embag: /dev/null");
        return 1;
    }
    int status = dispatch_command(argument_count, arguments);
    /* Output that cannot be written is a failure, whatever the command returned. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        perror("embag: standard output");
        return status != 0 ? status : 1;
    }
    return status;
}
