/* Makes lookups with grpc++ over a channel with a service configuration, as balance.py asks.
 * balance_client.py describes its arguments, input and output. */
#include "embag/v1/embedding_bag.grpc.pb.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <grpcpp/grpcpp.h>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace
{

const int workers = 4;
const auto pause = std::chrono::milliseconds(20);

class Load
{
  public:
    Load(const std::string &config, const std::string &addresses)
    {
        grpc::ChannelArguments options;
        options.SetServiceConfigJSON(config);
        stub_ = embag::v1::EmbeddingBag::NewStub(grpc::CreateCustomChannel(
            "ipv4:" + addresses, grpc::InsecureChannelCredentials(), options));
    }

    grpc::Status lookup(uint64_t *version)
    {
        embag::v1::LookupRequest request;
        request.set_model("spec");
        embag::v1::BagQuery *query = request.add_queries();
        query->set_table("emb_table");
        query->add_indices(0);
        query->add_indices(2);
        query->set_num_bags(1);
        grpc::ClientContext context;
        embag::v1::LookupResponse answer;
        grpc::Status status = stub_->Lookup(&context, request, &answer);
        *version = answer.version();
        return status;
    }

    void work()
    {
        while (true) {
            uint64_t version;
            grpc::Status status = lookup(&version);
            std::unique_lock<std::mutex> hold(lock_);
            if (status.ok()) {
                counts_[version]++;
            } else {
                failed_++;
                why_ = status.error_message();
            }
            hold.unlock();
            std::this_thread::sleep_for(pause);
        }
    }

    /* Returns the results since the last call, as a line. */
    std::string take()
    {
        std::lock_guard<std::mutex> hold(lock_);
        std::string line;
        for (const auto &[version, count] : counts_) {
            line += std::to_string(version) + ":" + std::to_string(count) + " ";
        }
        line += "failed:" + std::to_string(failed_) + " " + why_;
        counts_.clear();
        failed_ = 0;
        return line;
    }

  private:
    std::unique_ptr<embag::v1::EmbeddingBag::Stub> stub_;
    std::mutex lock_;
    std::map<uint64_t, int> counts_;
    int failed_ = 0;
    std::string why_;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    std::ifstream file(argv[1], std::ios::binary);
    static Load load({std::istreambuf_iterator<char>(file), {}}, argv[2]);
    uint64_t version;
    grpc::Status status = load.lookup(&version);
    if (!status.ok()) {
        bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
        std::puts(is_late ? "DEADLINE_EXCEEDED" : status.error_message().c_str());
        return 0;
    }
    std::cout << "OK" << std::endl;
    for (int i = 0; i < workers; i++) {
        std::thread(&Load::work, &load).detach();
    }
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << load.take() << std::endl;
    }
    std::quick_exit(0); /* The workers still use the channel. */
}
