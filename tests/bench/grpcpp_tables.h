/* The f32 tables of a model version on disk, for the grpc++ peer.
 * Thread: immutable after reading. Memory: the rows live as long as the process. */
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

// Prints an error on stderr and ends the process.
[[noreturn]] void PeerFail(const std::string &what);

// Reads every TABLE.npy of the directory into memory with 2 MiB pages, as embag does.
PeerTables PeerReadTables(const std::filesystem::path &directory);
