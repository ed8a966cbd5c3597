/* The f32 tables of a model version on disk, as the grpc++ peer holds them.
 * Thread: immutable once read. Memory: the tables' rows live as long as the process. */
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

struct PeerTable {
    const float *rows;
    std::uint64_t row_count;
    std::uint32_t dim;
};

using PeerTables = std::map<std::string, PeerTable>;

// Says what is wrong, and ends the process.
[[noreturn]] void PeerFail(const std::string &what);

// Reads every TABLE.npy of the directory, each into 2 MiB pages, as embag does.
PeerTables PeerReadTables(const std::filesystem::path &directory);
