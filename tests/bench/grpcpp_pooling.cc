#include "tests/bench/grpcpp_pooling.h"

#include "tests/bench/fbgemm_peer.h"

#include <cstring>

namespace
{
constexpr std::uint32_t kDimMax = 16384;

std::int64_t ReadInteger(const void *integers, std::size_t position)
{
    std::int64_t value;
    std::memcpy(
        &value, static_cast<const char *>(integers) + position * sizeof value, sizeof value);
    return value;
}

std::int64_t CountIndices(const eb_peer_query &query)
{
    return static_cast<std::int64_t>(query.indices_bytes / sizeof(std::int64_t));
}

std::size_t CountBags(const eb_peer_query &query)
{
    return query.offsets_bytes / sizeof(std::int64_t);
}

// Returns the end of bag `bag`. The last bag ends at the end of the indices.
std::int64_t FindEnd(const eb_peer_query &query, std::size_t bag)
{
    return bag + 1 < CountBags(query) ? ReadInteger(query.offsets, bag + 1) : CountIndices(query);
}

// Sums up the rows of indices [begin, end). Returns false if an index names no row. Common row
// widths have separate loops, which the compiler unrolls and keeps in registers.
template <std::uint32_t kDim>
bool PoolBag(const eb_peer_query &query, std::int64_t begin, std::int64_t end, float *out)
{
    float sum[kDim == 0 ? kDimMax : kDim];
    const std::size_t dim = kDim == 0 ? query.dim : kDim;
    std::memset(sum, 0, dim * sizeof *sum);
    for (std::int64_t i = begin; i < end; i++) {
        std::int64_t row = ReadInteger(query.indices, static_cast<std::size_t>(i));
        if (row < 0 || static_cast<std::uint64_t>(row) >= query.row_count) {
            return false;
        }
        const float *values = query.rows + static_cast<std::size_t>(row) * dim;
        for (std::size_t column = 0; column < dim; column++) {
            sum[column] += values[column];
        }
    }
    std::memcpy(out, sum, dim * sizeof *sum);
    return true;
}

template <std::uint32_t kDim> bool PoolQuery(const eb_peer_query &query)
{
    for (std::size_t bag = 0; bag < CountBags(query); bag++) {
        std::int64_t begin = ReadInteger(query.offsets, bag);
        std::int64_t end = FindEnd(query, bag);
        if (begin < 0 || begin > end || end > CountIndices(query) ||
            !PoolBag<kDim>(query, begin, end, query.out + bag * query.dim)) {
            return false;
        }
    }
    return true;
}

bool PoolPlainly(const eb_peer_query &query)
{
    switch (query.dim) {
    case 32: return PoolQuery<32>(query);
    case 64: return PoolQuery<64>(query);
    case 128: return PoolQuery<128>(query);
    default: return PoolQuery<0>(query);
    }
}

class PlainPooling final : public PeerPooling
{
  public:
    bool Run(const std::vector<eb_peer_query> &queries) const override
    {
        for (const eb_peer_query &query : queries) {
            if (!PoolPlainly(query)) {
                return false;
            }
        }
        return true;
    }
};

class KernelPooling final : public PeerPooling
{
  public:
    bool Run(const std::vector<eb_peer_query> &queries) const override
    {
        using Room = std::unique_ptr<eb_peer_kernels, void (*)(eb_peer_kernels *)>;
        thread_local Room room(eb_peer_kernels_create(), eb_peer_kernels_destroy);
        return room && eb_peer_kernels_run(
                           room.get(), queries.data(), static_cast<std::uint32_t>(queries.size()));
    }
};

using FbgemmKernel = std::unique_ptr<eb_fbgemm_kernel, void (*)(eb_fbgemm_kernel *)>;

class FbgemmPooling final : public PeerPooling
{
  public:
    explicit FbgemmPooling(const PeerTables &tables)
    {
        for (const auto &[name, table] : tables) {
            eb_fbgemm_shape shape = {};
            shape.storage = EB_STORAGE_F32;
            shape.dim = table.dim;
            shape.row_stride_bytes = table.dim * sizeof(float);
            shape.output_type = EB_F32;
            kernels_.try_emplace(table.dim, eb_fbgemm_create(&shape), eb_fbgemm_destroy);
        }
    }

    bool Run(const std::vector<eb_peer_query> &queries) const override
    {
        for (const eb_peer_query &query : queries) {
            if (!RunQuery(query)) {
                return false;
            }
        }
        return true;
    }

  private:
    // FBGEMM needs 32-bit offsets, one more than there are bags. It checks offsets and indices.
    bool RunQuery(const eb_peer_query &query) const
    {
        thread_local std::vector<std::int32_t> offsets;
        std::size_t bags = CountBags(query);
        offsets.resize(bags + 1);
        for (std::size_t bag = 0; bag < bags; bag++) {
            offsets[bag] = static_cast<std::int32_t>(ReadInteger(query.offsets, bag));
        }
        offsets[bags] = static_cast<std::int32_t>(CountIndices(query));
        eb_fbgemm_call call = {};
        call.rows = query.rows;
        call.row_count = query.row_count;
        call.indices = static_cast<const std::int64_t *>(query.indices);
        call.index_count = static_cast<std::uint64_t>(CountIndices(query));
        call.offsets = offsets.data();
        call.bag_count = static_cast<std::uint32_t>(bags);
        call.out = query.out;
        return eb_fbgemm_run(kernels_.at(query.dim).get(), &call, 1);
    }

    std::map<std::uint32_t, FbgemmKernel> kernels_; // by dim
};
} // namespace

std::unique_ptr<PeerPooling> PeerMakePooling(const std::string &mode, const PeerTables &tables)
{
    for (const auto &[name, table] : tables) {
        if (table.dim > kDimMax) {
            PeerFail(name + ": expected rows of at most " + std::to_string(kDimMax) + " values");
        }
    }
    if (mode == "plain") {
        return std::make_unique<PlainPooling>();
    }
    if (mode == "kernels") {
        return std::make_unique<KernelPooling>();
    }
    if (mode == "fbgemm" && eb_fbgemm_is_built()) {
        return std::make_unique<FbgemmPooling>(tables);
    }
    return nullptr;
}
