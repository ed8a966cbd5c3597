// Makes the calls of an Open Inference Protocol client, in the order of that client, with grpc++.
//     infer-sequence ADDRESS
// The server has the model "spec" with the specification's table. The exit status is 0 if every
// answer was as expected; otherwise the first unexpected one is reported.
#include "inference/open_inference.grpc.pb.h"

#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace
{

using Stub = inference::GRPCInferenceService::Stub;

constexpr int kTimeoutSeconds = 30;

void Expect(bool holds, const std::string &what)
{
    if (!holds) {
        std::cerr << "expected: " << what << std::endl;
        std::exit(1);
    }
}

template <typename Request, typename Response>
grpc::Status Call(Stub &stub,
    grpc::Status (Stub::*method)(grpc::ClientContext *, const Request &, Response *),
    const Request &request, Response *response)
{
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kTimeoutSeconds));
    return (stub.*method)(&context, request, response);
}

void ExpectReady(Stub &stub)
{
    inference::ServerLiveResponse live;
    inference::ServerReadyResponse server;
    inference::ModelReadyRequest request;
    inference::ModelReadyResponse model;
    request.set_name("spec");
    Expect(Call(stub, &Stub::ServerLive, inference::ServerLiveRequest(), &live).ok() && live.live(),
        "the server is live");
    Expect(Call(stub, &Stub::ServerReady, inference::ServerReadyRequest(), &server).ok() &&
               server.ready(),
        "the server is ready");
    Expect(
        Call(stub, &Stub::ModelReady, request, &model).ok() && model.ready(), "the model is ready");
}

void ExpectMetadata(Stub &stub)
{
    inference::ServerMetadataResponse server;
    inference::ModelMetadataRequest model_request;
    inference::ModelMetadataResponse model;
    inference::ModelConfigRequest config_request;
    inference::ModelConfigResponse config;
    model_request.set_name("spec");
    config_request.set_name("spec");
    Expect(Call(stub, &Stub::ServerMetadata, inference::ServerMetadataRequest(), &server).ok() &&
               server.name() == "embag",
        "the server reports its name");
    Expect(Call(stub, &Stub::ModelMetadata, model_request, &model).ok() &&
               model.inputs_size() == 3 && model.outputs_size() == 1 &&
               model.outputs(0).name() == "emb_table.pooled",
        "the model reports its tensors");
    Expect(Call(stub, &Stub::ModelConfig, config_request, &config).ok() &&
               config.config().input_size() == 3 && config.config().max_batch_size() == 0,
        "the model reports its configuration");
}

std::string Raw(const std::vector<int64_t> &values)
{
    return std::string(
        reinterpret_cast<const char *>(values.data()), values.size() * sizeof(int64_t));
}

inference::ModelInferRequest MakeRequest(int64_t row)
{
    inference::ModelInferRequest request;
    request.set_model_name("spec");
    request.set_id("7");
    auto *indices = request.add_inputs();
    indices->set_name("emb_table.indices");
    indices->set_datatype("INT64");
    indices->add_shape(2);
    indices->add_shape(1);
    request.add_raw_input_contents(Raw({3, row}));
    (*request.mutable_parameters())["reduction"].set_string_param("mean");
    return request;
}

void ExpectInference(Stub &stub)
{
    const float expected[] = {-1.0F, 1.5F, 0.8F, -0.7F};
    inference::ModelInferResponse answer;
    const grpc::Status status = Call(stub, &Stub::ModelInfer, MakeRequest(4), &answer);
    Expect(status.ok(), "the model infers: " + status.error_message());
    Expect(answer.id() == "7" && answer.model_version() == "1", "the answer has the request's id");
    Expect(answer.outputs_size() == 1 && answer.outputs(0).name() == "emb_table.pooled" &&
               answer.outputs(0).shape_size() == 2 && answer.outputs(0).shape(0) == 2 &&
               answer.outputs(0).shape(1) == 2,
        "the answer has its shape");
    Expect(answer.raw_output_contents(0).size() == sizeof expected &&
               memcmp(answer.raw_output_contents(0).data(), expected, sizeof expected) == 0,
        "the answer has its values");
    inference::ModelInferResponse none;
    Expect(Call(stub, &Stub::ModelInfer, MakeRequest(5), &none).error_code() ==
               grpc::StatusCode::OUT_OF_RANGE,
        "a row that does not exist is refused");
}

} // namespace

int main(int argc, char **argv)
{
    Expect(argc == 2, "usage: infer-sequence ADDRESS");
    const std::unique_ptr<Stub> stub = inference::GRPCInferenceService::NewStub(
        grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
    ExpectReady(*stub);
    ExpectMetadata(*stub);
    ExpectInference(*stub);
    return 0;
}
