/* How the grpc++ peer pools: with a plain loop, with our kernels, or with FBGEMM's.
 * Thread: any number may pool at once. Memory: each thread keeps room of its own. */
#pragma once

#include "tests/bench/grpcpp_tables.h"
#include "tests/bench/peer_kernels.h"

#include <memory>
#include <vector>

class PeerPooling
{
  public:
    virtual ~PeerPooling() = default;
    // Pools the queries of one request. false: an offset or an index is out of range.
    virtual bool Run(const std::vector<eb_peer_query> &queries) const = 0;
};

// `mode` is plain, kernels or fbgemm. nullptr: another, or the build has none of it.
std::unique_ptr<PeerPooling> PeerMakePooling(const std::string &mode, const PeerTables &tables);
