// A server that embag is compared with: lookups in a model of f32 tables, as one would write them
// with grpc++'s callback API.
//
//     embag-peer-grpcpp MODEL_VERSION_DIRECTORY PORT [plain | kernels | fbgemm]
//
// It pools with a plain loop that the compiler vectorises (the default), with embag's kernels, or
// with FBGEMM's if the build has them. It answers the requests of the benchmarks: queries with
// indices_i64, offsets_i64 and SUM, unary or on a LookupStream, and ListModels. Like embag, it
// checks bounds and keeps its tables in 2 MiB pages, so that only the servers differ.
#include "embag/v1/embedding_bag.grpc.pb.h"
#include "tests/bench/grpcpp_pooling.h"

#include <cstdint>
#include <cstdio>
#include <deque>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace
{
constexpr std::size_t kUnwrittenMax = 64; // unwritten answers at which a stream is not read further

// Answers lookups in one model.
class Model
{
  public:
    Model(const std::filesystem::path &directory, const std::string &mode)
        : name_(directory.parent_path().filename().string()), tables_(PeerReadTables(directory)),
          pooling_(PeerMakePooling(mode, tables_))
    {
        if (!pooling_) {
            PeerFail(mode + ": expected plain, kernels, or fbgemm in a build with FBGEMM");
        }
    }

    grpc::Status Answer(
        const embag::v1::LookupRequest &request, embag::v1::LookupResponse *response) const
    {
        thread_local std::vector<eb_peer_query> queries;
        queries.clear();
        response->set_request_id(request.request_id());
        response->set_model(request.model());
        response->set_version(1);
        for (int i = 0; i < request.queries_size(); i++) {
            auto table = tables_.find(request.queries(i).table());
            if (table == tables_.end()) {
                return {grpc::StatusCode::NOT_FOUND, "no such table"};
            }
            embag::v1::BagResult *result = response->add_results();
            result->set_query(static_cast<std::uint32_t>(i));
            queries.push_back(LayOut(request.queries(i), table->second, result));
        }
        if (!pooling_->Run(queries)) {
            return {grpc::StatusCode::OUT_OF_RANGE, "offset or index out of range"};
        }
        return grpc::Status::OK;
    }

    void Describe(embag::v1::Model *model) const
    {
        model->set_name(name_);
        model->set_served_version(1);
        embag::v1::ModelVersion *version = model->add_versions();
        version->set_version(1);
        version->set_state(embag::v1::ModelVersion::STATE_SERVING);
        for (const auto &[name, table] : tables_) {
            embag::v1::Table *described = version->add_tables();
            described->set_name(name);
            described->set_rows(table.row_count);
            described->add_shape(table.dim);
            described->set_type(embag::v1::DATA_TYPE_F32);
            described->set_storage("f32");
        }
    }

  private:
    // Allocates the result, and returns the query for it.
    static eb_peer_query LayOut(
        const embag::v1::BagQuery &query, const PeerTable &table, embag::v1::BagResult *result)
    {
        std::size_t bags = query.offsets_i64().size() / sizeof(std::int64_t);
        result->set_type(embag::v1::DATA_TYPE_F32);
        result->add_shape(bags);
        result->add_shape(table.dim);
        std::string *values = result->mutable_values();
        values->resize(bags * table.dim * sizeof(float));
        return {table.rows, table.row_count, table.dim, query.indices_i64().data(),
            query.indices_i64().size(), query.offsets_i64().data(), query.offsets_i64().size(),
            reinterpret_cast<float *>(values->data())};
    }

    std::string name_;
    PeerTables tables_;
    std::unique_ptr<PeerPooling> pooling_;
};

// One LookupStream. It continues to read while answers wait to be written, one write at a time.
class Stream final
    : public grpc::ServerBidiReactor<embag::v1::LookupRequest, embag::v1::LookupResponse>
{
  public:
    explicit Stream(const Model &model) : model_(model)
    {
        StartRead(&request_);
    }

    void OnReadDone(bool good) override
    {
        if (good && !request_.cancel()) {
            Push(Answer());
        }
        std::lock_guard<std::mutex> guard(lock_);
        is_read_ = !good;
        is_paused_ = good && unwritten_.size() >= kUnwrittenMax;
        if (good && !is_paused_) {
            StartRead(&request_);
        }
        FinishOnce();
    }

    void OnWriteDone(bool) override
    {
        std::lock_guard<std::mutex> guard(lock_);
        spare_.push_back(std::move(unwritten_.front()));
        unwritten_.pop_front();
        if (!unwritten_.empty()) {
            StartWrite(unwritten_.front().get());
        }
        if (is_paused_) {
            is_paused_ = false;
            StartRead(&request_);
        }
        FinishOnce();
    }

    void OnDone() override
    {
        delete this;
    }

  private:
    using Response = std::unique_ptr<embag::v1::LookupResponse>;

    Response Answer()
    {
        Response response = Take();
        grpc::Status status = model_.Answer(request_, response.get());
        if (!status.ok()) {
            response->clear_results();
            response->set_error_code(static_cast<std::uint32_t>(status.error_code()));
            response->set_error_message(status.error_message());
        }
        return response;
    }

    // Returns an empty message. A cleared message keeps its memory.
    Response Take()
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (spare_.empty()) {
            return std::make_unique<embag::v1::LookupResponse>();
        }
        Response response = std::move(spare_.back());
        spare_.pop_back();
        response->Clear();
        return response;
    }

    void Push(Response response)
    {
        std::lock_guard<std::mutex> guard(lock_);
        unwritten_.push_back(std::move(response));
        if (unwritten_.size() == 1) {
            StartWrite(unwritten_.front().get());
        }
    }

    void FinishOnce()
    {
        if (is_read_ && unwritten_.empty() && !is_finished_) {
            is_finished_ = true;
            Finish(grpc::Status::OK);
        }
    }

    const Model &model_;
    embag::v1::LookupRequest request_;
    std::mutex lock_; // protects all members below
    std::deque<Response> unwritten_;
    std::vector<Response> spare_;
    bool is_read_ = false;
    bool is_paused_ = false;
    bool is_finished_ = false;
};

class Service final : public embag::v1::EmbeddingBag::CallbackService
{
  public:
    explicit Service(const Model &model) : model_(model)
    {
    }

    grpc::ServerUnaryReactor *Lookup(grpc::CallbackServerContext *context,
        const embag::v1::LookupRequest *request, embag::v1::LookupResponse *response) override
    {
        grpc::ServerUnaryReactor *reactor = context->DefaultReactor();
        reactor->Finish(model_.Answer(*request, response));
        return reactor;
    }

    grpc::ServerBidiReactor<embag::v1::LookupRequest, embag::v1::LookupResponse> *LookupStream(
        grpc::CallbackServerContext *) override
    {
        return new Stream(model_);
    }

    grpc::ServerUnaryReactor *ListModels(grpc::CallbackServerContext *context,
        const embag::v1::ListModelsRequest *, embag::v1::ListModelsResponse *response) override
    {
        grpc::ServerUnaryReactor *reactor = context->DefaultReactor();
        model_.Describe(response->add_models());
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }

  private:
    const Model &model_;
};
} // namespace

int main(int argument_count, char **arguments)
{
    if (argument_count != 3 && argument_count != 4) {
        PeerFail("usage: embag-peer-grpcpp MODEL_VERSION_DIRECTORY PORT [plain|kernels|fbgemm]");
    }
    Model model(arguments[1], argument_count == 4 ? arguments[3] : "plain");
    Service service(model);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        std::string("127.0.0.1:") + arguments[2], grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server || port == 0) {
        PeerFail(std::string("cannot listen on port ") + arguments[2]);
    }
    std::fprintf(stderr, "event=listening address=127.0.0.1:%d\nevent=ready\n", port);
    server->Wait();
}
