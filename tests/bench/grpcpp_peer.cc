// What embag is measured against: the Lookup of a model of f32 tables as one would write it with
// grpc++'s callback server, pooling with a plain loop that the compiler vectorises.
//
//     embag-peer-grpcpp MODEL_VERSION_DIRECTORY PORT
//
// It answers what the benchmarks send: queries with indices_i64, offsets_i64 and SUM. It checks
// bounds as embag does and lays its tables in 2 MiB pages too, so that what differs is the server.
#include "embag/v1/embedding_bag.grpc.pb.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unordered_map>

namespace
{
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kDim = 128;
constexpr std::size_t kNpyPrefix = 10; // magic, version, and two bytes of header length

struct Table {
    const float *rows;
    std::int64_t row_count;
};

using Model = std::unordered_map<std::string, Table>;

[[noreturn]] void Fail(const std::string &what)
{
    std::fprintf(stderr, "embag-peer-grpcpp: %s\n", what.c_str());
    std::exit(1);
}

Table ReadTable(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    unsigned char prefix[kNpyPrefix];
    if (!file.read(reinterpret_cast<char *>(prefix), sizeof prefix)) {
        Fail(path.string() + ": not an npy file");
    }
    std::size_t start = kNpyPrefix + prefix[8] + (std::size_t{prefix[9]} << 8);
    std::size_t bytes = std::filesystem::file_size(path) - start;
    std::size_t room = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void *memory = std::aligned_alloc(kHugePage, room);
    if (!memory) {
        Fail("not enough memory for " + path.string());
    }
    (void)madvise(memory, room, MADV_HUGEPAGE);
    file.seekg(static_cast<std::streamoff>(start));
    if (!file.read(static_cast<char *>(memory), static_cast<std::streamsize>(bytes))) {
        Fail(path.string() + ": cannot be read");
    }
    return {static_cast<const float *>(memory),
        static_cast<std::int64_t>(bytes / (kDim * sizeof(float)))};
}

Model ReadModel(const char *directory)
{
    Model model;
    for (const auto &entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().extension() == ".npy") {
            model[entry.path().stem().string()] = ReadTable(entry.path());
        }
    }
    if (model.empty()) {
        Fail(std::string(directory) + ": no tables");
    }
    return model;
}

std::int64_t ReadInteger(const std::string &bytes, std::size_t position)
{
    std::int64_t value;
    std::memcpy(&value, bytes.data() + position * sizeof value, sizeof value);
    return value;
}

// The sum of the rows that indices [begin, end) name; false where one names none.
bool PoolBag(const Table &table, const std::string &indices, std::int64_t begin, std::int64_t end,
    float *out)
{
    float sum[kDim] = {};
    for (std::int64_t i = begin; i < end; i++) {
        std::int64_t row = ReadInteger(indices, static_cast<std::size_t>(i));
        if (row < 0 || row >= table.row_count) {
            return false;
        }
        const float *values = table.rows + static_cast<std::size_t>(row) * kDim;
        for (std::size_t column = 0; column < kDim; column++) {
            sum[column] += values[column];
        }
    }
    std::memcpy(out, sum, sizeof sum);
    return true;
}

bool AnswerQuery(const Table &table, const embag::v1::BagQuery &query, embag::v1::BagResult *result)
{
    auto index_count = static_cast<std::int64_t>(query.indices_i64().size() / sizeof(std::int64_t));
    std::size_t bag_count = query.offsets_i64().size() / sizeof(std::int64_t);
    result->set_type(embag::v1::DATA_TYPE_F32);
    result->add_shape(bag_count);
    result->add_shape(kDim);
    std::string *values = result->mutable_values();
    values->resize(bag_count * kDim * sizeof(float));
    float *out = reinterpret_cast<float *>(values->data());
    for (std::size_t bag = 0; bag < bag_count; bag++) {
        std::int64_t begin = ReadInteger(query.offsets_i64(), bag);
        std::int64_t end =
            bag + 1 < bag_count ? ReadInteger(query.offsets_i64(), bag + 1) : index_count;
        if (begin < 0 || begin > end || end > index_count ||
            !PoolBag(table, query.indices_i64(), begin, end, out + bag * kDim)) {
            return false;
        }
    }
    return true;
}

class Service final : public embag::v1::EmbeddingBag::CallbackService
{
  public:
    explicit Service(Model model) : model_(std::move(model))
    {
    }

    grpc::ServerUnaryReactor *Lookup(grpc::CallbackServerContext *context,
        const embag::v1::LookupRequest *request, embag::v1::LookupResponse *response) override
    {
        grpc::ServerUnaryReactor *reactor = context->DefaultReactor();
        reactor->Finish(Answer(*request, response));
        return reactor;
    }

  private:
    grpc::Status Answer(
        const embag::v1::LookupRequest &request, embag::v1::LookupResponse *response) const
    {
        response->set_request_id(request.request_id());
        response->set_model(request.model());
        response->set_version(1);
        for (int i = 0; i < request.queries_size(); i++) {
            auto table = model_.find(request.queries(i).table());
            if (table == model_.end()) {
                return {grpc::StatusCode::NOT_FOUND, "no such table"};
            }
            embag::v1::BagResult *result = response->add_results();
            result->set_query(static_cast<std::uint32_t>(i));
            if (!AnswerQuery(table->second, request.queries(i), result)) {
                return {grpc::StatusCode::OUT_OF_RANGE, "offset or index out of range"};
            }
        }
        return grpc::Status::OK;
    }

    Model model_;
};
} // namespace

int main(int argument_count, char **arguments)
{
    if (argument_count != 3) {
        Fail("usage: embag-peer-grpcpp MODEL_VERSION_DIRECTORY PORT");
    }
    Service service(ReadModel(arguments[1]));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        std::string("127.0.0.1:") + arguments[2], grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server || port == 0) {
        Fail(std::string("cannot listen on port ") + arguments[2]);
    }
    std::fprintf(stderr, "event=listening address=127.0.0.1:%d\nevent=ready\n", port);
    server->Wait();
}
