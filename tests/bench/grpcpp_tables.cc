#include "tests/bench/grpcpp_tables.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sys/mman.h>

namespace
{
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kNpyPrefix = 10; // magic, version, and two bytes of header length

PeerTable ParseShape(const std::string &header, const std::string &name)
{
    static const std::regex shape("'<f4'.*\\((\\d+), (\\d+)\\)");
    std::smatch found;
    if (!std::regex_search(header, found, shape)) {
        PeerFail(name + ": expected a two-dimensional table of f32");
    }
    return {nullptr, std::stoull(found[1]), static_cast<std::uint32_t>(std::stoul(found[2]))};
}

PeerTable ReadTable(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    unsigned char prefix[kNpyPrefix];
    if (!file.read(reinterpret_cast<char *>(prefix), sizeof prefix)) {
        PeerFail(path.string() + ": not an npy file");
    }
    std::string header(prefix[8] + (std::size_t{prefix[9]} << 8), ' ');
    file.read(header.data(), static_cast<std::streamsize>(header.size()));
    PeerTable table = ParseShape(header, path.string());
    std::size_t bytes = table.row_count * table.dim * sizeof(float);
    std::size_t room = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void *memory = std::aligned_alloc(kHugePage, room);
    if (!memory) {
        PeerFail("not enough memory for " + path.string());
    }
    (void)madvise(memory, room, MADV_HUGEPAGE);
    if (!file.read(static_cast<char *>(memory), static_cast<std::streamsize>(bytes))) {
        PeerFail("cannot read " + path.string());
    }
    table.rows = static_cast<const float *>(memory);
    return table;
}
} // namespace

void PeerFail(const std::string &what)
{
    std::fprintf(stderr, "embag-peer-grpcpp: %s\n", what.c_str());
    std::exit(1);
}

PeerTables PeerReadTables(const std::filesystem::path &directory)
{
    PeerTables tables;
    for (const auto &entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().extension() == ".npy") {
            tables[entry.path().stem().string()] = ReadTable(entry.path());
        }
    }
    if (tables.empty()) {
        PeerFail(directory.string() + ": the directory has no .npy files");
    }
    return tables;
}
