/* Calls embagd with grpc++ as any client would; prints one line for each check, "ok NAME" or
 * "FAIL NAME: why".
 *     embag-interop-grpcpp --target ADDRESS [--ca FILE [--cert FILE --key FILE]]
 * With --drain it repeats lookups until its input ends the run, and prints how many were answered.
 * Each lookup that fails is a FAIL: a gRPC client loses none while a server drains and another
 * takes its place.
 * Threads: its own, and one for each stream. Memory: the heap. */
#include "embag/v1/embedding_bag.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <grpcpp/grpcpp.h>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace
{

using embag::v1::EmbeddingBag;
using embag::v1::LookupRequest;
using embag::v1::LookupResponse;
using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr int streamed = 1000;
constexpr int large_rows = 320; /* of 16 KiB each, 5 MiB in all */

using Options = std::map<std::string, std::string>;

LookupRequest make_request(uint64_t id)
{
    LookupRequest request;
    request.set_request_id(id);
    request.set_model("spec");
    auto *query = request.add_queries();
    query->set_table("emb_table");
    for (int row : {0, 2, 3, 4}) {
        query->add_indices(row);
    }
    for (int offset : {0, 2, 2}) {
        query->add_offsets(offset);
    }
    return request;
}

/* Returns a request that names the same row of 16 KiB this many times. */
LookupRequest make_rows(size_t count)
{
    LookupRequest request;
    request.set_model("spec");
    auto *query = request.add_queries();
    query->set_table("large");
    query->set_indices_i64(std::string(8 * count, '\0'));
    query->set_indices_per_bag(1);
    return request;
}

std::string check_answer(const LookupResponse &answer)
{
    static const float want[] = {-2.1f, -2.4f, 0, 0, -0.2f, 0.8f};
    float values[6];
    if (answer.error_code() != 0 || answer.results_size() != 1 ||
        answer.results(0).values().size() != sizeof values) {
        return "an unexpected answer: " + answer.ShortDebugString();
    }
    std::memcpy(values, answer.results(0).values().data(), sizeof values);
    for (int i = 0; i < 6; i++) {
        if (std::fabs(values[i] - want[i]) > 1e-5f) {
            return "values[" + std::to_string(i) + "] is " + std::to_string(values[i]);
        }
    }
    return "";
}

void set_deadline(grpc::ClientContext &context, int ms)
{
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(ms));
}

std::string expect(const grpc::Status &status, grpc::StatusCode code, const char *text)
{
    bool is_right =
        status.error_code() == code && status.error_message().find(text) != std::string::npos;
    return is_right
               ? ""
               : "status " + std::to_string(status.error_code()) + ": " + status.error_message();
}

class Client
{
  public:
    explicit Client(const Options &options)
        : options_(options), stub_(EmbeddingBag::NewStub(connect(4 << 20)))
    {
    }

    std::string lookup()
    {
        grpc::ClientContext context;
        set_deadline(context, 30000);
        LookupResponse answer;
        grpc::Status status = stub_->Lookup(&context, make_request(7), &answer);
        return status.ok() ? check_answer(answer) : expect(status, grpc::StatusCode::OK, "");
    }

    std::string gzip()
    {
        grpc::ClientContext context;
        set_deadline(context, 30000);
        context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
        LookupResponse answer;
        grpc::Status status = stub_->Lookup(&context, make_rows(100), &answer);
        bool whole = status.ok() && answer.results(0).values().size() == 100 * 4096 * 4;
        return whole ? "" : "incomplete: " + status.error_message();
    }

    std::string stream()
    {
        grpc::ClientContext context;
        set_deadline(context, 30000);
        auto call = stub_->LookupStream(&context);
        std::thread writer([&call] {
            for (int id = 1; id <= streamed; id++) {
                call->Write(make_request(static_cast<uint64_t>(id)));
            }
            call->WritesDone();
        });
        std::set<uint64_t> seen;
        std::string failure;
        LookupResponse answer;
        while (call->Read(&answer)) {
            seen.insert(answer.request_id());
            failure = failure.empty() ? check_answer(answer) : failure;
        }
        writer.join();
        grpc::Status status = call->Finish();
        if (seen.size() != streamed) {
            failure = std::to_string(seen.size()) + " answers";
        }
        return status.ok() ? failure : expect(status, grpc::StatusCode::OK, "");
    }

    std::string large()
    {
        LookupRequest request = make_rows(large_rows);
        LookupResponse answer;
        grpc::ClientContext first;
        grpc::Status status = stub_->Lookup(&first, request, &answer);
        if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) {
            return "not refused by the client's own limit";
        }
        grpc::ClientContext second;
        set_deadline(second, 30000);
        status = EmbeddingBag::NewStub(connect(64 << 20))->Lookup(&second, request, &answer);
        bool whole = status.ok() && answer.results(0).values().size() == large_rows * 4096 * 4;
        return whole ? "" : "incomplete: " + status.error_message();
    }

    std::string deadline()
    {
        grpc::ClientContext context;
        set_deadline(context, 200);
        LookupResponse answer;
        auto call = stub_->LookupStream(&context);
        call->Read(&answer);
        return expect(call->Finish(), grpc::StatusCode::DEADLINE_EXCEEDED, "");
    }

    std::string cancel()
    {
        for (int i = 0; i < 100; i++) {
            grpc::ClientContext context;
            LookupResponse answer;
            auto call = stub_->LookupStream(&context);
            context.TryCancel();
            call->Read(&answer);
            std::string failure = expect(call->Finish(), grpc::StatusCode::CANCELLED, "");
            if (!failure.empty()) {
                return failure;
            }
        }
        return lookup();
    }

    std::string error()
    {
        grpc::ClientContext context;
        set_deadline(context, 30000);
        LookupRequest bad = make_request(1);
        bad.mutable_queries(0)->set_indices(2, 5);
        LookupResponse answer;
        return expect(stub_->Lookup(&context, bad, &answer), grpc::StatusCode::OUT_OF_RANGE,
            "indices[2] = 5");
    }

    std::string health()
    {
        auto stub = Health::NewStub(connect(4 << 20));
        HealthCheckRequest request;
        HealthCheckResponse answer;
        grpc::ClientContext first;
        set_deadline(first, 30000);
        request.set_service("spec");
        grpc::Status status = stub->Check(&first, request, &answer);
        if (!status.ok() || answer.status() != HealthCheckResponse::SERVING) {
            return "the model does not serve: " + status.error_message();
        }
        for (const char *name : {"spec", "absent"}) {
            bool is_there = std::strcmp(name, "spec") == 0;
            grpc::ClientContext context;
            set_deadline(context, 30000);
            request.set_service(name);
            auto feed = stub->Watch(&context, request);
            if (!feed->Read(&answer) ||
                answer.status() != (is_there ? HealthCheckResponse::SERVING
                                             : HealthCheckResponse::SERVICE_UNKNOWN)) {
                return std::string("watching ") + name + " starts with another status";
            }
            context.TryCancel();
            (void)feed->Finish();
        }
        return "";
    }

    /* Makes lookups on channels that check the server's health by themselves. */
    std::string healthy()
    {
        LookupResponse answer;
        grpc::ClientContext first;
        set_deadline(first, 30000);
        grpc::Status status = EmbeddingBag::NewStub(connect(4 << 20, "spec"))
                                  ->Lookup(&first, make_request(7), &answer);
        if (!status.ok()) {
            return expect(status, grpc::StatusCode::OK, "");
        }
        grpc::ClientContext second;
        set_deadline(second, 30000);
        status = EmbeddingBag::NewStub(connect(4 << 20, "absent"))
                     ->Lookup(&second, make_request(7), &answer);
        return expect(status, grpc::StatusCode::UNAVAILABLE, "");
    }

  private:
    std::string read(const char *name)
    {
        std::ifstream file(options_[name]);
        std::stringstream text;
        text << file.rdbuf();
        return text.str();
    }

    /* `watched` is the service whose health the channel checks, or "" for no checks. */
    std::shared_ptr<grpc::Channel> connect(int receive_bytes_max, const std::string &watched = "")
    {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetMaxReceiveMessageSize(receive_bytes_max);
        if (!watched.empty()) {
            arguments.SetServiceConfigJSON(R"({"loadBalancingConfig": [{"round_robin": {}}],)"
                                           R"("healthCheckConfig": {"serviceName": ")" +
                                           watched + "\"}}");
        }
        auto security = grpc::InsecureChannelCredentials();
        if (!options_["--ca"].empty()) {
            security = grpc::SslCredentials({read("--ca"), read("--key"), read("--cert")});
            arguments.SetSslTargetNameOverride("localhost");
        }
        return grpc::CreateCustomChannel(options_["--target"], security, arguments);
    }

    Options options_;
    std::unique_ptr<EmbeddingBag::Stub> stub_;
};

bool report(const char *name, const std::string &failure)
{
    if (failure.empty()) {
        std::printf("ok %s\n", name);
        return true;
    }
    std::printf("FAIL %s: %s\n", name, failure.c_str());
    return false;
}

bool drain(Client &client)
{
    bool is_over = false;
    std::thread reader([&is_over] {
        (void)std::getchar();
        __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    });
    long answered = 0;
    std::string failure;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED) && failure.empty()) {
        failure = client.lookup();
        answered += failure.empty();
    }
    std::printf("%ld answered\n", answered);
    bool is_good = report("drain", failure);
    std::fflush(stdout);
    reader.join();
    return is_good;
}

} // namespace

int main(int argc, char **argv)
{
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        options[argv[i]] = argv[i + 1];
    }
    Client client(options);
    if (argc % 2 == 0 && std::strcmp(argv[argc - 1], "--drain") == 0) {
        return drain(client) ? 0 : 1;
    }
    bool is_good = report("unary", client.lookup());
    is_good &= report("stream", client.stream());
    is_good &= report("large", client.large());
    is_good &= report("deadline", client.deadline());
    is_good &= report("cancel", client.cancel());
    is_good &= report("error", client.error());
    is_good &= report("gzip", client.gzip());
    is_good &= report("health", client.health());
    is_good &= report("healthy", client.healthy());
    return is_good ? 0 : 1;
}
